// The caching host allocator. There are four size classes between two powers of two, so at most a
// fifth of a block above 256 bytes is unused. Each class has a list of freed blocks; one mutex
// guards all lists. A training step frees what it allocates, so after the first step each
// allocation removes a block from a list and each release adds one.
#include "core/memory/memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/mman.h>

#include "core/profiler/profiler.h"
#include "kernels/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define AXLE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AXLE_ASAN 1
#endif
#endif
#ifdef AXLE_ASAN
#include <sanitizer/asan_interface.h>
#define AXLE_POISON(block, size) ASAN_POISON_MEMORY_REGION(block, size)
#define AXLE_UNPOISON(block, size) ASAN_UNPOISON_MEMORY_REGION(block, size)
#else
#define AXLE_POISON(block, size) static_cast<void>(0)
#define AXLE_UNPOISON(block, size) static_cast<void>(0)
#endif

namespace axle::host_memory {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAddressSpace = std::size_t{1} << 47;
constexpr int kClasses = 4 * 64;
constexpr std::size_t kNoAllocator = SIZE_MAX;

// Returns the index of the size class for a size, and sets `rounded` to the size of the class. The
// classes are 64, 128, 192 and 256 bytes, then four per power of two.
int class_of(std::size_t size, std::size_t& rounded) {
    if (size <= 4 * kAlignment) {
        rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
        return static_cast<int>(rounded / kAlignment) - 1;
    }
    const int octave = std::bit_width(size - 1) - 1;  // 2^octave < size <= 2^(octave + 1)
    const std::size_t base = std::size_t{1} << octave;
    const std::size_t step = base / 4;
    const std::size_t steps = (size - base + step - 1) / step;
    rounded = base + steps * step;
    return 4 * octave + static_cast<int>(steps) - 1;
}

void* from_system(std::size_t size, std::size_t alignment, void*) {
    void* block = nullptr;
    if (size >= kHugePage) alignment = kHugePage;
    if (posix_memalign(&block, alignment, size) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
#endif
    return block;
}

void to_system(void* block, std::size_t, void*) noexcept { std::free(block); }

struct Cache {
    std::mutex mutex;
    std::vector<void*> freed[kClasses];  // freed blocks of the current allocator
    std::size_t size[kClasses] = {};     // set when a class is first used
    MemoryStats stats;
    std::int64_t limit = INT64_MAX;

    // The allocators in the order of their first use; allocator 0 is the system's. `owners`
    // contains only blocks of other allocators, so that a process without a custom allocator has no
    // overhead.
    std::vector<HostAllocator> allocators = {{from_system, to_system, nullptr}};
    std::size_t current_allocator = 0;
    // The allocator whose freed blocks are cached: current_allocator or kNoAllocator.
    std::size_t cached_allocator = 0;
    std::unordered_map<void*, std::size_t> owners;
};

// Returns the cache. It is never destroyed because tensors can outlive static objects.
Cache& cache() {
    static auto* const instance = new Cache;
    return *instance;
}

std::size_t owner_of(const Cache& c, void* block) {
    if (c.owners.empty()) return 0;
    const auto found = c.owners.find(block);
    return found == c.owners.end() ? 0 : found->second;
}

// Returns the block to the allocator that allocated it.
void return_block(Cache& c, void* block, std::size_t size) noexcept {
    AXLE_UNPOISON(block, size);
    const std::size_t owner = owner_of(c, block);
    if (owner != 0) c.owners.erase(block);
    const HostAllocator& allocator = c.allocators[owner];
    allocator.deallocate(block, size, allocator.context);
    c.stats.reserved -= static_cast<std::int64_t>(size);
}

void flush(Cache& c) noexcept {
    for (int i = 0; i < kClasses; ++i) {
        for (void* block : c.freed[i]) return_block(c, block, c.size[i]);
        c.freed[i].clear();
    }
}

// Allocates a new block. Returns null if there is no memory or the limit is reached. Throws
// UsageError if a custom allocator returns a misaligned block.
void* take_new(Cache& c, std::size_t size) {
    if (static_cast<std::int64_t>(size) > c.limit - c.stats.reserved) return nullptr;
    const HostAllocator allocator = c.allocators[c.current_allocator];
    void* const block = allocator.allocate(size, kAlignment, allocator.context);
    if (block == nullptr || c.current_allocator == 0) return block;
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    try {
        if (address % kAlignment != 0)
            throw UsageError(str("set_allocator: the allocator returned a block of ", size,
                                 " bytes that is not aligned to ", kAlignment));
        c.owners.emplace(block, c.current_allocator);
    } catch (...) {
        allocator.deallocate(block, size, allocator.context);
        throw;
    }
    return block;
}

[[noreturn]] void out_of_memory(std::size_t requested, const Cache& c) {
    const MemoryStats& s = c.stats;
    const std::int64_t cached = s.reserved - s.current;
    throw OutOfMemory(
        str("allocate: out of memory: ", requested, " bytes requested, ", s.current, " in use, ",
            cached, " cached, peak ", s.peak, c.limit == INT64_MAX ? "" : str(", limit ", c.limit)),
        static_cast<std::int64_t>(requested), s.current, cached, s.peak);
}

}  // namespace

void* allocate(std::size_t size) {
    if (size == 0) return nullptr;
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    if (size > kAddressSpace) out_of_memory(size, c);
    std::size_t rounded = 0;
    const int index = class_of(size, rounded);
    c.size[index] = rounded;
    std::vector<void*>& freed = c.freed[index];
    void* block = nullptr;
    if (!freed.empty()) {
        block = freed.back();
        freed.pop_back();
        AXLE_UNPOISON(block, size);
    } else {
        block = take_new(c, rounded);
        if (block == nullptr) {
            flush(c);
            block = take_new(c, rounded);
        }
        if (block == nullptr) out_of_memory(size, c);
        ++c.stats.system_allocations;
        c.stats.reserved += static_cast<std::int64_t>(rounded);
        AXLE_POISON(block, rounded);
        AXLE_UNPOISON(block, size);
    }
    ++c.stats.allocations;
    c.stats.current += static_cast<std::int64_t>(rounded);
    c.stats.peak = std::max(c.stats.peak, c.stats.current);
    if (profiler::enabled())
        profiler::record_memory(static_cast<std::int64_t>(rounded), c.stats.current,
                                c.stats.reserved);
    return block;
}

void deallocate(void* block, std::size_t size) noexcept {
    if (block == nullptr) return;
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    std::size_t rounded = 0;
    std::vector<void*>& freed = c.freed[class_of(size, rounded)];
    c.stats.current -= static_cast<std::int64_t>(rounded);
    AXLE_POISON(block, rounded);
    if (c.stats.reserved > c.limit || owner_of(c, block) != c.cached_allocator) {
        return_block(c, block, rounded);
    } else {
        try {
            freed.push_back(block);
        } catch (...) {
            return_block(c, block, rounded);
        }
    }
    if (profiler::enabled()) profiler::record_memory(0, c.stats.current, c.stats.reserved);
}

MemoryStats stats() {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    return c.stats;
}

void reset_peak() {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    c.stats.peak = c.stats.current;
    c.stats.allocations = c.stats.system_allocations = 0;
}

void empty_cache() {
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    flush(c);
}

void set_allocator(const HostAllocator& allocator) {
    const bool system = allocator.allocate == nullptr && allocator.deallocate == nullptr;
    if (!system && (allocator.allocate == nullptr || allocator.deallocate == nullptr))
        throw UsageError(str(
            "set_allocator: allocate and deallocate must both be set, or neither, which restores "
            "the system's allocator: ",
            allocator.allocate == nullptr ? "allocate" : "deallocate", " is null"));
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    const auto same = [&](const HostAllocator& a) {
        return a.allocate == allocator.allocate && a.deallocate == allocator.deallocate &&
               a.context == allocator.context;
    };
    auto found = c.allocators.begin();
    if (!system) found = std::find_if(c.allocators.begin(), c.allocators.end(), same);
    if (found == c.allocators.end()) found = c.allocators.insert(found, allocator);
    flush(c);
    c.current_allocator = static_cast<std::size_t>(found - c.allocators.begin());
    c.cached_allocator = allocator.caches_blocks ? c.current_allocator : kNoAllocator;
}

void set_limit(std::int64_t bytes) {
    if (bytes < 0) throw ValueError(str("set_limit: bytes can't be negative: ", bytes));
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    c.limit = bytes == 0 ? INT64_MAX : bytes;
    if (c.stats.reserved > c.limit) flush(c);
}

}  // namespace axle::host_memory
