// Random numbers and dropout. Each thread generates the words for the elements of one 16-byte
// access, at least one Philox block, and writes these elements together. The speed is limited by
// Philox's multiplications for 16-bit types, and by memory for wider types.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/random.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

// The number of elements per thread and step.
template <class T>
inline constexpr int kRun = std::max(4, kPack<T>);

template <class T>
struct Run {
    T at[kRun<T>];
};

// Loads kRun elements that begin at p. Elements after the first `count` are not read; they are 0.
template <class T>
__device__ inline Run<T> load_run(const T* p, std::int64_t count, bool aligned) {
    Run<T> run;
    if (aligned && count >= kRun<T>) {
#pragma unroll
        for (int j = 0; j < kRun<T>; j += kPack<T>) {
            const Pack<T> pack = load_pack(p + j);
#pragma unroll
            for (int k = 0; k < kPack<T>; ++k) run.at[j + k] = pack.at[k];
        }
        return run;
    }
#pragma unroll
    for (int j = 0; j < kRun<T>; ++j) run.at[j] = j < count ? p[j] : T(0);
    return run;
}
template <class T>
__device__ inline void store_run(const Run<T>& run, T* p, std::int64_t count, bool aligned) {
    if (aligned && count >= kRun<T>) {
#pragma unroll
        for (int j = 0; j < kRun<T>; j += kPack<T>) {
            Pack<T> pack;
#pragma unroll
            for (int k = 0; k < kPack<T>; ++k) pack.at[k] = run.at[j + k];
            store_pack(p + j, pack);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < kRun<T>; ++j)
        if (j < count) p[j] = run.at[j];
}

// Generates the words of kCount elements, beginning with element `first`, a multiple of 4.
template <int kCount>
__device__ inline void words_from(const Philox& random, std::int64_t first,
                                  std::uint32_t (&words)[kCount]) {
#pragma unroll
    for (int j = 0; j < kCount; j += 4) {
        const auto block = random.block(static_cast<std::uint64_t>(first + j) / 4);
#pragma unroll
        for (int k = 0; k < 4; ++k) words[j + k] = block[k];
    }
}

// Fills y. f(words, run) computes the elements of a run from their random words.
template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    generate(Philox given, F f, std::int64_t n, T* y, bool aligned) {
    const Philox random = given.resolved();
    for (std::int64_t i = thread_in_grid() * kRun<T>; i < n; i += threads_in_grid() * kRun<T>) {
        std::uint32_t words[kRun<T>];
        words_from(random, i, words);
        Run<T> run;
        f(words, run);
        store_run(run, y + i, n - i, aligned);
    }
}

template <class T, class F>
void generate_with(Cuda& on, const Philox& random, F f, const View& y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    start(on, {grid_for(on, n, kThreads, kRun<T>), kThreads}, &generate<T, F>, random, f, n,
          y.as<T>(), packs<T>(y.data));
}

// Returns low + u * range, computed without a fused multiply-add so that every processor gives the
// same bits.
__device__ inline float scaled(float u, float range, float low) {
    return __fadd_rn(__fmul_rn(u, range), low);
}
__device__ inline double scaled(double u, double range, double low) {
    return __dadd_rn(__dmul_rn(u, range), low);
}

template <class T>
struct Uniform {
    Compute<T> low, range, limit;
    __device__ void operator()(const std::uint32_t (&words)[kRun<T>], Run<T>& run) const {
        using C = Compute<T>;
#pragma unroll
        for (int j = 0; j < kRun<T>; ++j) {
            const C value = scaled(static_cast<C>(Philox::to_unit(words[j])), range, low);
            run.at[j] = convert<T>(value < limit ? value : limit);
        }
    }
};

// Returns (word + 1/2) / 2^32, rounded once: both 16-bit halves of the word and their scaled values
// are exact floats.
__device__ inline float open_unit(std::uint32_t word) {
    const float tail = fmaf(static_cast<float>(word & 0xffffu), 0x1p-32f, 0x1p-33f);
    return fmaf(static_cast<float>(word >> 16), 0x1p-16f, tail);
}

template <class T>
struct Normal {
    Compute<T> mean, std;
    __device__ void operator()(const std::uint32_t (&words)[kRun<T>], Run<T>& run) const {
        using C = Compute<T>;
#pragma unroll
        for (int j = 0; j < kRun<T>; j += 2) {
            const C radius = sqrt(C(-2) * log(static_cast<C>(open_unit(words[j]))));
            const C turns = static_cast<C>(Philox::to_unit(words[j + 1]));
            C sine, cosine;
            if constexpr (std::is_same_v<C, double>)
                sincospi(2 * turns, &sine, &cosine);
            else
                sincospif(2 * turns, &sine, &cosine);
            run.at[j] = convert<T>(mean + std * (radius * cosine));
            run.at[j + 1] = convert<T>(mean + std * (radius * sine));
        }
    }
};

template <class T>
struct Whole {
    std::int64_t low;
    std::uint64_t range;
    __device__ void operator()(const std::uint32_t (&words)[kRun<T>], Run<T>& run) const {
#pragma unroll
        for (int j = 0; j < kRun<T>; ++j)
            run.at[j] = static_cast<T>(low + static_cast<std::int64_t>(words[j] * range >> 32));
    }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    drop(Philox given, std::uint32_t threshold, Compute<T> scale, std::int64_t n, const T* x, T* y,
         bool aligned) {
    using C = Compute<T>;
    const Philox random = given.resolved();
    for (std::int64_t i = thread_in_grid() * kRun<T>; i < n; i += threads_in_grid() * kRun<T>) {
        Run<T> run = load_run(x + i, n - i, aligned);
        std::uint32_t words[kRun<T>];
        words_from(random, i, words);
#pragma unroll
        for (int j = 0; j < kRun<T>; ++j) {
            const bool kept = words[j] >> 8 >= threshold;
            run.at[j] = kept ? convert<T>(static_cast<C>(run.at[j]) * scale) : T(0);
        }
        store_run(run, y + i, n - i, aligned);
    }
}

// Returns the largest value of T below high.
template <class T>
double largest_below(double high) {
    if constexpr (sizeof(T) == 2) {
        T rounded(static_cast<float>(high));
        if (static_cast<double>(rounded) < high) return rounded;
        const bool zero = (rounded.bits & 0x7fff) == 0, negative = (rounded.bits & 0x8000) != 0;
        rounded.bits = zero ? std::uint16_t{0x8001}
                            : static_cast<std::uint16_t>(rounded.bits + (negative ? 1 : -1));
        return rounded;
    } else {
        const T rounded = static_cast<T>(high);
        if (static_cast<double>(rounded) < high) return rounded;
        return std::nextafter(rounded, -std::numeric_limits<T>::infinity());
    }
}

}  // namespace

void uniform(Cuda& on, Philox random, double low, double high, View y) {
    visit_float(y.dtype, [&]<class T>() {
        using C = Compute<T>;
        const double limit = std::max(low, largest_below<T>(high));
        const Uniform<T> f{static_cast<C>(low), static_cast<C>(high - low), static_cast<C>(limit)};
        generate_with<T>(on, random, f, y);
    });
}

void normal(Cuda& on, Philox random, double mean, double std, View y) {
    visit_float(y.dtype, [&]<class T>() {
        using C = Compute<T>;
        generate_with<T>(on, random, Normal<T>{static_cast<C>(mean), static_cast<C>(std)}, y);
    });
}

void randint(Cuda& on, Philox random, std::int64_t low, std::int64_t high, View y) {
    const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    visit_index(y.dtype, [&]<class T>() { generate_with<T>(on, random, Whole<T>{low, range}, y); });
}

void dropout(Cuda& on, Philox random, double p, ConstView x, View y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    // The test u >= p, where u = bits / 2^24, is computed as a comparison of integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
    const double scale = p < 1 ? 1 / (1 - p) : 0;
    visit_float(y.dtype, [&]<class T>() {
        start(on, {grid_for(on, n, kThreads, kRun<T>), kThreads}, &drop<T>, random, threshold,
              static_cast<Compute<T>>(scale), n, x.as<T>(), y.as<T>(),
              packs<T>(x.data) && packs<T>(y.data));
    });
}

}  // namespace axle::kernels
