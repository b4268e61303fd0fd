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

// What the cache asks for memory in place of the system.
struct HostAllocator {
    // At least `size` bytes at a multiple of `alignment`, a power of two; null if there are none.
    void* (*allocate)(std::size_t size, std::size_t alignment, void* context) = nullptr;
    void (*deallocate)(void* block, std::size_t size, void* context) noexcept = nullptr;
    void* context = nullptr;
};

// All functions may be called from any thread.
namespace host_memory {

// size bytes aligned to 64, not initialised. A freed block of the same size class is reused;
// otherwise the system (or the host, see set_allocator) is asked, after a failure once more with
// the cache flushed, and then OutOfMemory is thrown. size 0 gives nullptr. Blocks of 2 MiB and more
// ask for huge pages.
void* allocate(std::size_t size);
// size is that of the allocation. Under AddressSanitizer a cached block is poisoned.
void deallocate(void* block, std::size_t size) noexcept;

MemoryStats stats();
void reset_peak();
// Gives every cached block back to where it came from.
void empty_cache();

// At any time; an allocator without functions restores the system. Cached blocks are given back to
// where they came from at once, blocks in use when they are freed: until then a replaced allocator
// and its context must live. The functions are called by one thread at a time and must not call
// this library. UsageError if only one of them is given, and, in allocate(), for a block that isn't
// aligned. Kernels' scratch memory is not asked for here, but from operator new.
void set_allocator(const HostAllocator& allocator);

// OutOfMemory rather than more than so many bytes reserved; 0 is no limit. What is in use stays.
// ValueError for a negative one.
void set_limit(std::int64_t bytes);

}  // namespace host_memory
}  // namespace axle::inline v0
