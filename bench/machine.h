// Measures the peak performance of this machine, with which the results of benchmarks are compared.
//
// Three loops use the widest vectors of the CPU: independent multiply-adds in registers, the update
// a = f(a, b) of arrays much larger than the last-level cache, and the same update of arrays that
// fit into L2. An update is the fastest access pattern of a core: it reads two arrays and writes
// one of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>

#include <unistd.h>

#include "core/memory/memory.h"
#include "kernels/thread_pool.h"

namespace axle::bench {

// The measured peak rates for one number of threads.
struct Peaks {
    double gflops = 0;  // 10^9 f32 operations per second; a multiply-add counts as two
    double memory = 0;  // GB/s of an update of arrays in memory
    double cache = 0;   // GB/s of an update of arrays in L2
};

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Defines two functions for vectors of BYTES bytes and a target attribute:
//     multiply_adds_NAME: `rounds` times kChains multiply-adds of BYTES / 4 lanes;
//     update_NAME: a[i] = a[i] / 2 + b[i] for n floats, n a multiple of 16, aligned to 64 bytes.
// Twelve independent chains are enough to keep two arithmetic units busy on all current CPUs.
#define AXLE_PEAK_LOOPS(NAME, BYTES, ATTRIBUTE)                                        \
    ATTRIBUTE inline float multiply_adds_##NAME(std::int64_t rounds) {                 \
        using V __attribute__((vector_size(BYTES))) = float;                           \
        const V m = V{} + 0.5f, c = V{} + 1.0f;                                        \
        V a = m, b = c, d = m + 2, e = m + 3, f = m + 4, g = m + 5;                    \
        V h = m + 6, i = m + 7, j = m + 8, k = m + 9, l = m + 10, n = m + 11;          \
        for (; rounds > 0; --rounds) {                                                 \
            a = a * m + c, b = b * m + c, d = d * m + c, e = e * m + c, f = f * m + c; \
            g = g * m + c, h = h * m + c, i = i * m + c, j = j * m + c, k = k * m + c; \
            l = l * m + c, n = n * m + c;                                              \
        }                                                                              \
        const V sum = a + b + d + e + f + g + h + i + j + k + l + n;                   \
        return sum[0];                                                                 \
    }                                                                                  \
    ATTRIBUTE inline void update_##NAME(float* a, const float* b, std::int64_t n) {    \
        using V __attribute__((vector_size(BYTES), may_alias)) = float;                \
        const V half = V{} + 0.5f;                                                     \
        constexpr std::int64_t kLanes = BYTES / 4;                                     \
        for (std::int64_t at = 0; at < n; at += kLanes) {                              \
            V& to = *reinterpret_cast<V*>(a + at);                                     \
            to = to * half + *reinterpret_cast<const V*>(b + at);                      \
        }                                                                              \
    }
AXLE_PEAK_LOOPS(portable, 16, )
#if defined(__x86_64__)
AXLE_PEAK_LOOPS(avx2, 32, __attribute__((target("avx2,fma"))))
AXLE_PEAK_LOOPS(avx512, 64, __attribute__((target("avx512f"))))
#endif
#undef AXLE_PEAK_LOOPS

inline constexpr int kChains = 12;

// The loops for this CPU, with the size of its vectors in bytes.
struct PeakLoops {
    int bytes;
    float (*multiply_adds)(std::int64_t rounds);
    void (*update)(float* a, const float* b, std::int64_t n);
};
inline PeakLoops peak_loops() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return {64, multiply_adds_avx512, update_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {32, multiply_adds_avx2, update_avx2};
#endif
    return {16, multiply_adds_portable, update_portable};
}

// Calls f several times and returns the time of the fastest call in seconds. Other processes have
// disturbed this call least.
template <class F>
double best_seconds(int calls, F&& f) {
    double best = 1e30;
    for (int i = 0; i < calls; ++i) {
        const auto start = Clock::now();
        f();
        best = std::min(best, seconds_since(start));
    }
    return best;
}

// Returns the size of the last-level cache in bytes, or a default if the system does not report it.
inline std::int64_t last_cache_bytes() {
    const long found = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return found > 0 ? found : std::int64_t{32} << 20;
}
// Returns a size in bytes that exceeds all caches: if operands of this size are used in turn, they
// are not in a cache when they are used again.
inline std::int64_t cold_bytes() {
    return std::clamp(4 * last_cache_bytes(), std::int64_t{128} << 20, std::int64_t{1} << 30);
}

// Returns the GB/s of `passes` updates of two arrays of n floats per thread.
inline double update_rate(int threads, std::int64_t n, int passes) {
    const auto update = peak_loops().update;
    const auto bytes = static_cast<std::size_t>(threads * n) * sizeof(float);
    auto* a = static_cast<float*>(host_memory::allocate(bytes));
    auto* b = static_cast<float*>(host_memory::allocate(bytes));
    std::fill_n(a, threads * n, 1.0f), std::fill_n(b, threads * n, 1.0f);
    const double seconds = best_seconds(12, [&] {
        kernels::parallel(threads, [&](std::int64_t t) {
            for (int i = 0; i < passes; ++i) update(a + t * n, b + t * n, n);
        });
    });
    host_memory::deallocate(a, bytes), host_memory::deallocate(b, bytes);
    host_memory::empty_cache();
    return 3e-9 * static_cast<double>(bytes) * passes / seconds;
}

inline Peaks measure_peaks(int threads) {
    const PeakLoops loops = peak_loops();
    constexpr std::int64_t kRounds = 300'000;
    volatile float sink = 0;  // prevents the compiler from removing the sums
    const double seconds = best_seconds(60, [&] {
        kernels::parallel(threads, [&](std::int64_t) { sink = loops.multiply_adds(kRounds); });
    });
    const double flops = 2.0 * kRounds * kChains * (loops.bytes / 4) * threads;
    return {.gflops = flops / seconds / 1e9,
            .memory = update_rate(threads, cold_bytes() / 8 / threads / 16 * 16, 1),
            .cache = update_rate(threads, 32 << 10, 60)};
}

// Returns the peaks with `threads` threads, which are measured in the first call with this number.
// Also sets the number of threads of the process.
inline const Peaks& peaks(int threads) {
    static std::map<int, Peaks> measured;
    kernels::set_num_threads(threads);
    const auto found = measured.find(threads);
    if (found != measured.end()) return found->second;
    return measured[threads] = measure_peaks(threads);
}

}  // namespace axle::bench
