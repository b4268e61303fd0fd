// Size classes: powers of two split in four, so that at most a fifth of a block is unused. Each
// class keeps its freed blocks in a list under one mutex; a training step frees what it allocates,
// so after the first step every request is a pop and a push.
#include "core/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include <sys/mman.h>

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

namespace axle::inline v0::host_memory {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAddressSpace = std::size_t{1} << 47;
constexpr int kClasses = 4 * 64;

// 64, 128, 192, 256, then four steps an octave. Returns the class; `rounded` is its size.
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

struct Cache {
    std::mutex mutex;
    std::vector<void*> freed[kClasses];
    std::size_t size[kClasses] = {};  // of a class that has been asked for
    MemoryStats stats;
};

// Never destroyed: tensors may outlive it.
Cache& cache() {
    static auto* const instance = new Cache;
    return *instance;
}

void* from_system(std::size_t size) {
    void* block = nullptr;
    if (posix_memalign(&block, size >= kHugePage ? kHugePage : kAlignment, size) != 0)
        return nullptr;
#ifdef MADV_HUGEPAGE
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
#endif
    return block;
}

void flush(Cache& c) {
    for (int i = 0; i < kClasses; ++i) {
        for (void* block : c.freed[i]) {
            AXLE_UNPOISON(block, c.size[i]);
            std::free(block);
            c.stats.reserved -= static_cast<std::int64_t>(c.size[i]);
        }
        c.freed[i].clear();
    }
}

[[noreturn]] void out_of_memory(std::size_t requested, const MemoryStats& s) {
    const std::int64_t cached = s.reserved - s.current;
    throw OutOfMemory(str("allocate: out of memory: ", requested, " bytes requested, ", s.current,
                          " in use, ", cached, " cached, peak ", s.peak),
                      static_cast<std::int64_t>(requested), s.current, cached, s.peak);
}

}  // namespace

void* allocate(std::size_t size) {
    if (size == 0) return nullptr;
    Cache& c = cache();
    const std::lock_guard lock(c.mutex);
    if (size > kAddressSpace) out_of_memory(size, c.stats);
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
        block = from_system(rounded);
        if (block == nullptr) {
            flush(c);
            block = from_system(rounded);
        }
        if (block == nullptr) out_of_memory(size, c.stats);
        ++c.stats.system_allocations;
        c.stats.reserved += static_cast<std::int64_t>(rounded);
        AXLE_POISON(block, rounded);
        AXLE_UNPOISON(block, size);
    }
    ++c.stats.allocations;
    c.stats.current += static_cast<std::int64_t>(rounded);
    c.stats.peak = std::max(c.stats.peak, c.stats.current);
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
    try {
        freed.push_back(block);
    } catch (...) {
        AXLE_UNPOISON(block, rounded);
        std::free(block);
        c.stats.reserved -= static_cast<std::int64_t>(rounded);
    }
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

}  // namespace axle::inline v0::host_memory
