// The caching host allocator, which provides the memory of CPU tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle {

// Statistics of an allocator. Sizes are in bytes. Counts begin at the start of the process or at
// the last reset of the peak.
struct MemoryStats {
    std::int64_t current = 0;             // bytes in use, rounded up to the sizes of blocks
    std::int64_t peak = 0;                // maximum of `current`
    std::int64_t reserved = 0;            // allocated from the system, including cached blocks
    std::int64_t allocations = 0;         // number of requests
    std::int64_t system_allocations = 0;  // requests that needed memory from the system
};

// A custom allocator that provides the cache's memory instead of the system.
struct HostAllocator {
    // Returns at least `size` bytes aligned to `alignment`, a power of two, or null if there is no
    // memory.
    void* (*allocate)(std::size_t size, std::size_t alignment, void* context) = nullptr;
    void (*deallocate)(void* block, std::size_t size, void* context) noexcept = nullptr;
    void* context = nullptr;
    // If false, a freed block is deallocated immediately, and each allocation calls allocate().
    bool caches_blocks = true;
};

// The functions of the caching host allocator. Any thread may call them.
namespace host_memory {

// Returns `size` uninitialized bytes aligned to 64, or nullptr for size 0. Reuses a freed block of
// the same size class; otherwise allocates from the system (or with the allocator of
// set_allocator). If the allocation fails, empties the cache and retries, then throws OutOfMemory.
// Blocks of 2 MiB and more from the system use huge pages if the system provides them.
void* allocate(std::size_t size);
// Frees a block. `size` must be the size that was passed to allocate(). In builds with
// AddressSanitizer, access to a freed block is reported as an error.
void deallocate(void* block, std::size_t size) noexcept;

MemoryStats stats();
// Restarts the counts, and sets the peak to the bytes in use.
void reset_peak();
// Returns every cached block to the allocator that allocated it.
void empty_cache();

// Sets the allocator; may be called at any time. A HostAllocator without functions restores the
// system's allocator. Cached blocks are returned to their allocator immediately, and blocks in use
// are returned when they are freed. A replaced allocator and its context must stay valid until all
// of its blocks are returned. The functions of an allocator are called by one thread at a time and
// must not call this library. Throws UsageError if only one function is given. allocate() throws
// UsageError if the allocator returns a misaligned block. Scratch memory of kernels is allocated
// with operator new instead.
void set_allocator(const HostAllocator& allocator);

// Limits the reserved bytes; 0 means no limit. Allocations above the limit throw OutOfMemory.
// Blocks in use are not affected. Throws ValueError for a negative limit.
void set_limit(std::int64_t bytes);

}  // namespace host_memory
}  // namespace axle
