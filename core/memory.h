// The caching host allocator: every tensor's memory comes from here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle::inline v0 {

// Bytes; counts are of calls since the start or the last reset_peak().
struct MemoryStats {
    std::int64_t current = 0;             // handed out, rounded up to size classes
    std::int64_t peak = 0;                // largest `current`
    std::int64_t reserved = 0;            // taken from the system: handed out and cached
    std::int64_t allocations = 0;         // requests served
    std::int64_t system_allocations = 0;  // of those, served by the system
};

// All functions may be called from any thread.
namespace host_memory {

// size bytes aligned to 64, not initialised. A freed block of the same size class is reused;
// otherwise the system is asked, after a failure once more with the cache flushed, and then
// OutOfMemory is thrown. size 0 gives nullptr. Blocks of 2 MiB and more ask for huge pages.
void* allocate(std::size_t size);
// size is that of the allocation. Under AddressSanitizer a cached block is poisoned.
void deallocate(void* block, std::size_t size) noexcept;

MemoryStats stats();
void reset_peak();
// Gives every cached block back to the system.
void empty_cache();

}  // namespace host_memory
}  // namespace axle::inline v0
