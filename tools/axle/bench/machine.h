// Measures the peak performance of this machine, for comparison with the results of benchmarks.
//
// Three kinds of loops use vectors of one size. The first computes independent multiply-adds in
// registers. The second updates arrays of cold_bytes() in total, a = f(a, b), and the third updates
// arrays that fit into L2. An update is the fastest access pattern of a core: it reads two arrays
// and writes one array.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/targets.h"

#include "core/memory/memory.h"
#include "kernels/dtype.h"
#include "kernels/thread_pool.h"

namespace axle::bench {

// The measured peak rates for one number of threads.
struct Peaks {
    // 10^9 operations per second; a multiply-add counts as two.
    double f32 = 0, f64 = 0;
    double bf16 = 0;    // bf16 multiply-adds; 0 if the instruction set has none
    double memory = 0;  // GB/s of an update of arrays in memory
    double cache = 0;   // GB/s of an update of arrays in L2

    // Returns the peak of a kernel whose elements have this dtype. Without an instruction for
    // 16-bit products, kernels multiply their elements as f32.
    double arithmetic(DType dtype) const {
        if (dtype == DType::f64) return f64;
        return dtype == DType::bf16 && bf16 > 0 ? bf16 : f32;
    }
};

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

inline constexpr int kChains = 12;

// Defines a function that executes `rounds` times kChains multiply-adds of a vector of BYTES bytes.
// Twelve independent chains are enough to keep two arithmetic units busy on all current CPUs.
#define AXLE_MULTIPLY_ADDS(NAME, TYPE, BYTES, ATTRIBUTE)                               \
    ATTRIBUTE inline float multiply_adds_##NAME(std::int64_t rounds) {                 \
        using V __attribute__((vector_size(BYTES))) = TYPE;                            \
        const V m = V{} + TYPE(0.5), c = V{} + TYPE(1);                                \
        V a = m, b = c, d = m + 2, e = m + 3, f = m + 4, g = m + 5;                    \
        V h = m + 6, i = m + 7, j = m + 8, k = m + 9, l = m + 10, n = m + 11;          \
        for (; rounds > 0; --rounds) {                                                 \
            a = a * m + c, b = b * m + c, d = d * m + c, e = e * m + c, f = f * m + c; \
            g = g * m + c, h = h * m + c, i = i * m + c, j = j * m + c, k = k * m + c; \
            l = l * m + c, n = n * m + c;                                              \
        }                                                                              \
        const V sum = a + b + d + e + f + g + h + i + j + k + l + n;                   \
        return static_cast<float>(sum[0]);                                             \
    }
// Defines a function that computes a[i] = a[i] / 2 + b[i] for n floats. n is a multiple of 16, and
// the arrays are aligned to 64 bytes.
#define AXLE_UPDATE(NAME, BYTES, ATTRIBUTE)                                         \
    ATTRIBUTE inline void update_##NAME(float* a, const float* b, std::int64_t n) { \
        using V __attribute__((vector_size(BYTES), may_alias)) = float;             \
        const V half = V{} + 0.5f;                                                  \
        constexpr std::int64_t kLanes = BYTES / 4;                                  \
        for (std::int64_t at = 0; at < n; at += kLanes) {                           \
            V& to = *reinterpret_cast<V*>(a + at);                                  \
            to = to * half + *reinterpret_cast<const V*>(b + at);                   \
        }                                                                           \
    }
#define AXLE_PEAK_LOOPS(NAME, BYTES, ATTRIBUTE)              \
    AXLE_MULTIPLY_ADDS(NAME##_f32, float, BYTES, ATTRIBUTE)  \
    AXLE_MULTIPLY_ADDS(NAME##_f64, double, BYTES, ATTRIBUTE) \
    AXLE_UPDATE(NAME, BYTES, ATTRIBUTE)
AXLE_PEAK_LOOPS(portable, 16, )
#if defined(__x86_64__)
AXLE_PEAK_LOOPS(avx2, 32, __attribute__((target("avx2,fma"))))
AXLE_PEAK_LOOPS(avx512, 64, __attribute__((target("avx512f"))))

// Executes `rounds` times kChains instructions that add 32 products of bf16 numbers to f32 sums.
__attribute__((target("avx512f,avx512bf16"))) inline float multiply_adds_bf16(std::int64_t rounds) {
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f80);  // ones
    const auto add = [&](__m512 & sum)
        __attribute__((target("avx512f,avx512bf16"), always_inline)) {
        sum = _mm512_dpbf16_ps(sum, x, x);
    };
    const __m512 zero = _mm512_setzero_ps();
    __m512 a = zero, b = zero, c = zero, d = zero, e = zero, f = zero;
    __m512 g = zero, h = zero, i = zero, j = zero, k = zero, l = zero;
    for (; rounds > 0; --rounds) {
        add(a), add(b), add(c), add(d), add(e), add(f);
        add(g), add(h), add(i), add(j), add(k), add(l);
    }
    const __m512 sum = a + b + c + d + e + f + g + h + i + j + k + l;
    return sum[0];
}

// Executes `rounds` times kChains instructions that multiply 16 x 32 by 32 x 16 bf16 numbers.
// Requires the permission to use AMX, which kernels::has_amx() requests.
__attribute__((target("amx-tile,amx-bf16"))) inline float multiply_adds_amx(std::int64_t rounds) {
    struct alignas(64) Shapes {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
    };
    static constexpr Shapes kShapes;
    _tile_loadconfig(&kShapes);  // makes all registers zero
    for (; rounds > 0; --rounds) {
        for (int third = 0; third < kChains / 4; ++third) {
            _tile_dpbf16ps(0, 4, 5);
            _tile_dpbf16ps(1, 4, 5);
            _tile_dpbf16ps(2, 4, 5);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_release();
    return 0;
}
#endif
#undef AXLE_PEAK_LOOPS
#undef AXLE_UPDATE
#undef AXLE_MULTIPLY_ADDS

// The instruction sets of the loops. `best` selects the best set of this CPU.
enum class Vectors { best, portable, avx2, avx512, avx512_bf16, avx512_amx };

// The loops for an instruction set, with the size of its vectors in bytes.
struct PeakLoops {
    int bytes;
    float (*f32)(std::int64_t rounds);
    float (*f64)(std::int64_t rounds);
    float (*bf16)(std::int64_t rounds);  // null without instructions for bf16
    int bf16_operations;                 // of an instruction
    void (*update)(float* a, const float* b, std::int64_t n);
};
inline PeakLoops peak_loops(Vectors vectors) {
#if defined(__x86_64__)
    const bool best = vectors == Vectors::best;
    const auto wants = [&](Vectors kind, bool supported) {
        return vectors == kind || (best && supported);
    };
    if (wants(Vectors::avx512_amx, kernels::has_amx()))
        return {64,
                multiply_adds_avx512_f32,
                multiply_adds_avx512_f64,
                multiply_adds_amx,
                2 * 16 * 16 * 32,
                update_avx512};
    if (wants(Vectors::avx512_bf16, __builtin_cpu_supports("avx512bf16")))
        return {64,
                multiply_adds_avx512_f32,
                multiply_adds_avx512_f64,
                multiply_adds_bf16,
                64,
                update_avx512};
    if (wants(Vectors::avx512, __builtin_cpu_supports("avx512f")))
        return {64, multiply_adds_avx512_f32, multiply_adds_avx512_f64, nullptr, 0, update_avx512};
    if (wants(Vectors::avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
        return {32, multiply_adds_avx2_f32, multiply_adds_avx2_f64, nullptr, 0, update_avx2};
#endif
    static_cast<void>(vectors);
    return {
        16, multiply_adds_portable_f32, multiply_adds_portable_f64, nullptr, 0, update_portable};
}

// Calls f several times and returns the time of the fastest call in seconds. The fastest call is
// the one least disturbed by other processes.
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
// Returns four times the size of the last-level cache in bytes, but from 128 MiB to 1 GiB.
inline std::int64_t cold_bytes() {
    return std::clamp(4 * last_cache_bytes(), std::int64_t{128} << 20, std::int64_t{1} << 30);
}

// Returns the GB/s of `passes` updates of two arrays of n floats per thread.
inline double update_rate(const PeakLoops& loops, int threads, std::int64_t n, int passes) {
    const auto bytes = static_cast<std::size_t>(threads * n) * sizeof(float);
    auto* a = static_cast<float*>(host_memory::allocate(bytes));
    auto* b = static_cast<float*>(host_memory::allocate(bytes));
    std::fill_n(a, threads * n, 1.0f), std::fill_n(b, threads * n, 1.0f);
    const double seconds = best_seconds(12, [&] {
        kernels::parallel(threads, [&](std::int64_t t) {
            for (int i = 0; i < passes; ++i) loops.update(a + t * n, b + t * n, n);
        });
    });
    host_memory::deallocate(a, bytes), host_memory::deallocate(b, bytes);
    host_memory::empty_cache();
    return 3e-9 * static_cast<double>(bytes) * passes / seconds;
}

inline Peaks measure_peaks(int threads, Vectors vectors) {
    const PeakLoops loops = peak_loops(vectors);
    // Returns the GFLOP/s of a loop whose instructions execute `operations` operations.
    const auto rate = [&](float (*loop)(std::int64_t), int operations) {
        constexpr std::int64_t kRounds = 300'000;
        volatile float sink = 0;  // prevents the compiler from removing the sums
        const double seconds = best_seconds(
            60, [&] { kernels::parallel(threads, [&](std::int64_t) { sink = loop(kRounds); }); });
        return 1e-9 * kRounds * kChains * operations * threads / seconds;
    };
    return {.f32 = rate(loops.f32, loops.bytes / 2),
            .f64 = rate(loops.f64, loops.bytes / 4),
            .bf16 = loops.bf16 == nullptr ? 0 : rate(loops.bf16, loops.bf16_operations),
            .memory = update_rate(loops, threads, cold_bytes() / 8 / threads / 16 * 16, 1),
            .cache = update_rate(loops, threads, 32 << 10, 60)};
}

// Returns the peaks with `threads` threads, which are measured in the first call with these
// arguments. Also sets the number of threads of the process.
inline const Peaks& peaks(int threads, Vectors vectors = Vectors::best) {
    static std::map<std::pair<int, Vectors>, Peaks> measured;
    kernels::set_num_threads(threads);
    const std::pair key(threads, vectors);
    const auto found = measured.find(key);
    if (found != measured.end()) return found->second;
    return measured[key] = measure_peaks(threads, vectors);
}

}  // namespace axle::bench
