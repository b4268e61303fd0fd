// Private to core: device memory that grows without moving.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace axle::cuda {

// An address range that is one eighth larger than the device's memory. Only its beginning is mapped
// to memory. Not thread-safe.
class ExpandableSegment {
  public:
    // Returns a segment without mapped memory, or null if the driver cannot map memory or the
    // environment contains AXLE_CUDA_EXPANDABLE=0.
    static std::unique_ptr<ExpandableSegment> create(int device);
    virtual ~ExpandableSegment() = default;

    // Maps `bytes` more bytes, a multiple of 2 MiB. Returns their address, or null if there is not
    // enough memory.
    virtual char* grow(std::size_t bytes) = 0;
    // Unmaps the memory after `from`, which must not be in use. Memory is unmapped in the pieces in
    // which it was mapped, at most 20 MiB each; a piece that begins before `from` is kept. Returns
    // the number of bytes that were unmapped.
    virtual std::size_t shrink(const char* from) = 0;

    void* last_block = nullptr;  // used by the allocator only
};

}  // namespace axle::cuda
