// Private to dist: the rounds in which MpiEngine transfers data, and their memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace axle::dist {

// The parts of all ranks in the memory of one round: their sizes and offsets in bytes.
struct MpiParts {
    std::vector<int> counts, offsets;
    int total = 0;

    void add(std::int64_t bytes) {
        counts.push_back(static_cast<int>(bytes));
        offsets.push_back(total);
        total += static_cast<int>(bytes);
    }
};

// Divides the data of each rank into rounds of `part` bytes; the last round may be smaller.
struct MpiRounds {
    std::int64_t part;

    std::int64_t count(std::int64_t bytes) const { return (bytes + part - 1) / part; }
    // Returns the number of bytes in round `round` of a transfer of `bytes` bytes.
    std::int64_t size(std::int64_t bytes, std::int64_t round) const {
        return std::clamp<std::int64_t>(bytes - round * part, 0, part);
    }
    MpiParts parts(std::span<const std::int64_t> bytes, std::int64_t round) const {
        MpiParts result;
        for (const std::int64_t each : bytes) result.add(size(each, round));
        return result;
    }
};

inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Uninitialized memory. reserve() returns at least `bytes` bytes. If the memory must grow, its
// content is lost.
class MpiBuffer {
  public:
    std::byte* reserve(std::int64_t bytes) {
        if (size_ < bytes || data_ == nullptr) {
            size_ = std::max<std::int64_t>(bytes, 1);
            data_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size_));
        }
        return data_.get();
    }
    std::byte* data() const { return data_.get(); }

  private:
    std::unique_ptr<std::byte[]> data_;
    std::int64_t size_ = 0;
};

// The memory of one round. It is shared with the operation that uses it.
struct MpiMemory : std::enable_shared_from_this<MpiMemory> {
    MpiBuffer own, parts, result;  // `parts` has a part for each rank
};

}  // namespace axle::dist
