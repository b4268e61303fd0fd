#include "kernels/exec.h"

#include <algorithm>

namespace axle::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMinBlock = std::size_t{1} << 18;

}  // namespace

std::int64_t Cpu::scratch_bytes() const {
    std::size_t total = 0;
    for (const Block& block : blocks_) total += block.size;
    return static_cast<std::int64_t>(total);
}

void* Scratch::bytes(std::size_t size) {
    size = (size + kAlignment - 1) / kAlignment * kAlignment;
    std::vector<Cpu::Block>& blocks = on_.blocks_;
    while (on_.block_ < blocks.size() && on_.used_ + size > blocks[on_.block_].size) {
        ++on_.block_;
        on_.used_ = 0;
    }
    if (on_.block_ == blocks.size()) {
        std::size_t wanted = std::max(size, kMinBlock);
        if (!blocks.empty()) wanted = std::max(wanted, 2 * blocks.back().size);
        Cpu::Block block;
        block.bytes = std::make_unique_for_overwrite<std::byte[]>(wanted + kAlignment);
        block.size = wanted;
        blocks.push_back(std::move(block));
    }
    auto address = reinterpret_cast<std::uintptr_t>(blocks[on_.block_].bytes.get());
    address = (address + kAlignment - 1) / kAlignment * kAlignment + on_.used_;
    on_.used_ += size;
    return reinterpret_cast<void*>(address);
}

}  // namespace axle::kernels
