// Private to core: device memory that grows in place.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace axle::cuda {

// An address range as large as the device's memory whose beginning is mapped. Not thread-safe.
class ExpandableSegment {
  public:
    // Returns null if the driver cannot map memory.
    static std::unique_ptr<ExpandableSegment> create(int device);
    virtual ~ExpandableSegment() = default;

    // Maps `bytes` more, a multiple of 2 MiB. Returns their address, or null if there is no memory.
    virtual char* grow(std::size_t bytes) = 0;
    // Unmaps the whole pages after `from`, which must not be in use. Returns the bytes released.
    virtual std::size_t shrink(const char* from) = 0;

    void* last_block = nullptr;  // used by the allocator
};

}  // namespace axle::cuda
