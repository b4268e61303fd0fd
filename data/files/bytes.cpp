#include "data/files/bytes.h"

#include <cassert>
#include <cstring>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::uint16_t swapped(std::uint16_t x) { return __builtin_bswap16(x); }
std::uint32_t swapped(std::uint32_t x) { return __builtin_bswap32(x); }
std::uint64_t swapped(std::uint64_t x) { return __builtin_bswap64(x); }

template <class T>
void swap_all(std::span<std::byte> elements) {
    for (std::byte* at = elements.data(); at != elements.data() + elements.size();
         at += sizeof(T)) {
        T x;
        std::memcpy(&x, at, sizeof x);
        x = swapped(x);
        std::memcpy(at, &x, sizeof x);
    }
}

}  // namespace

void throw_at_byte(const std::string& name, std::int64_t offset, const std::string& what) {
    throw FileError(printable(name) + ": byte " + std::to_string(offset) + ": " + what);
}

void swap_bytes(std::span<std::byte> elements, std::int64_t width) {
    assert(std::ssize(elements) % width == 0);
    if (width == 2) swap_all<std::uint16_t>(elements);
    if (width == 4) swap_all<std::uint32_t>(elements);
    if (width == 8) swap_all<std::uint64_t>(elements);
}

std::span<std::byte> bytes_of(const Tensor& contiguous) {
    return {static_cast<std::byte*>(contiguous.raw_data()),
            static_cast<std::size_t>(contiguous.numel() * size_of(contiguous.dtype()))};
}

}  // namespace axle::data
