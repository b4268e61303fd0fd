// The caching host allocator, which provides the memory of CPU tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle {

// Sizes in bytes. Counts start at the start of the process or the last reset_peak().
struct MemoryStats {
    std::int64_t current = 0;             // in use, rounded up to size classes
    std::int64_t peak = 0;                // maximum of `current`
    std::int64_t reserved = 0;            // taken from the system: in use and cached
    std::int64_t allocations = 0;         // requests served
    std::int64_t system_allocations = 0;  // requests that needed memory from the system
};

// Replaces the system as the source of the cache's memory.
struct HostAllocator {
    // Returns at least `size` bytes aligned to `alignment`, a power of two, or null if there is no
    // memory.
    void* (*allocate)(std::size_t size, std::size_t alignment, void* context) = nullptr;
    void (*deallocate)(void* block, std::size_t size, void* context) noexcept = nullptr;
    void* context = nullptr;
};

// All functions can be called from any thread.
namespace host_memory {

// Returns `size` uninitialized bytes aligned to 64, or nullptr for size 0. Reuses a freed block of
// the same size class; otherwise allocates from the system (or with the allocator of
// set_allocator). If that fails, it flushes the cache and retries, then throws OutOfMemory. Blocks
// of 2 MiB and more request huge pages.
void* allocate(std::size_t size);
// Frees a block. size must be the size passed to allocate(). Under AddressSanitizer a cached block
// is poisoned.
void deallocate(void* block, std::size_t size) noexcept;

MemoryStats stats();
void reset_peak();
// Returns every cached block to the allocator it came from.
void empty_cache();

// Sets the allocator, at any time. An allocator without functions restores the system. Cached
// blocks are returned to their allocator immediately, and blocks in use when they are freed. A
// replaced allocator and its context must stay valid until then. The functions are called by one
// thread at a time and must not call this library. Throws UsageError if only one function is given;
// allocate() throws it if a block is misaligned. Scratch memory of kernels is allocated with
// operator new instead.
void set_allocator(const HostAllocator& allocator);

// Limits the reserved bytes; allocations above the limit throw OutOfMemory. 0 means no limit.
// Blocks in use are not affected. Throws ValueError for a negative limit.
void set_limit(std::int64_t bytes);

}  // namespace host_memory
}  // namespace axle
