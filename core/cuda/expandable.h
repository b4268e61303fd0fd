// Private to core: device memory that grows in place.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace axle::inline v0::cuda {

// An address range as large as the device's memory whose beginning is mapped. Not thread-safe.
class ExpandableSegment {
  public:
    // Returns null if the driver cannot map memory.
    static std::unique_ptr<ExpandableSegment> create(int device);
    virtual ~ExpandableSegment() = default;

    // Maps `bytes` more, a multiple of 2 MiB. Returns their address, or null if there is no memory.
    virtual char* grow(std::size_t bytes) = 0;
    // Unmaps the whole pieces that lie behind `from`, with nothing in use there; the bytes given
    // back.
    virtual std::size_t shrink(const char* from) = 0;

    void* last_block = nullptr;  // used by the allocator
};

}  // namespace axle::inline v0::cuda
