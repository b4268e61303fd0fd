// Quantization to 8 bits, conversion back to f32, and the scales. Quantization is one pass over
// memory. The largest absolute value is computed with an atomic maximum of bits, which have the
// same order as non-negative floats. A thread quantizes up to four elements at a time.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/rules/quantize_rules.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
constexpr int kEach = sizeof(T) == 8 ? 2 : 4;

__device__ inline void raise(float* largest, std::uint32_t size) {
    if (size > magnitude_bits(*static_cast<volatile float*>(largest)))
        atomicMax(reinterpret_cast<unsigned*>(largest), size);
}

// Quantizes n elements if kWrites is true, and raises *largest to their largest magnitude unless
// `largest` is null. `packs` groups of kEach elements are loaded as packs.
template <class From, class To, bool kWrites>
__global__ void quantize_kernel(const From* x, std::int64_t n, std::int64_t packs,
                                const float* scale, To* y, float* largest) {
    constexpr int kPackSize = kEach<From>;
    const float factor = kWrites ? scale[0] : 1;
    std::uint32_t most = 0;
    const auto one = [&](From from) {
        const auto value = static_cast<float>(from);
        const std::uint32_t size = magnitude_bits(value);
        most = size > most ? size : most;
        return To(value * factor);
    };
    for (std::int64_t p = thread_in_grid(); p < packs; p += threads_in_grid()) {
        const auto in = load_pack<From, kPackSize>(x + p * kPackSize);
        Pack<To, kPackSize> out;
#pragma unroll
        for (int e = 0; e < kPackSize; ++e) out.at[e] = one(in.at[e]);
        if constexpr (kWrites) store_pack(y + p * kPackSize, out);
    }
    for (std::int64_t i = packs * kPackSize + thread_in_grid(); i < n; i += threads_in_grid()) {
        const To out = one(x[i]);
        if constexpr (kWrites) y[i] = out;
    }
    if (largest == nullptr) return;
    most = block_max<kThreads>(most);
    if (threadIdx.x == 0) raise(largest, most);
}

template <class From, class To, bool kWrites>
void start_quantize(Cuda& on, const ConstView& x, const float* scale, To* y, float* largest) {
    const std::int64_t n = x.numel();
    if (n == 0) return;
    const bool in_packs = packs<From>(x.data) && packs<To>(y);
    start(on, {grid_for(on, n, kThreads, kEach<From>), kThreads},
          &quantize_kernel<From, To, kWrites>, x.as<From>(), n, in_packs ? n / kEach<From> : 0,
          scale, y, largest);
}

template <class From>
__global__ void dequantize_kernel(const From* x, std::int64_t n, float* y) {
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) y[i] = x[i];
}

__global__ void current_scale_kernel(const float* largest, float range, bool power_of_two,
                                     float* scale) {
    set_current_scale(*largest, range, power_of_two, scale);
}

__global__ void update_delayed_scales_kernel(DelayedScaling rule, float* history, float* scales) {
    if (threadIdx.x < 3) update_delayed_scale(rule, static_cast<int>(threadIdx.x), history, scales);
}

}  // namespace

void quantize(Cuda& on, ConstView x, const float* scale, View y, float* largest) {
    visit_float(x.dtype, [&]<class From>() {
        visit_float8(y.dtype, [&]<class To>() {
            start_quantize<From, To, true>(on, x, scale, y.as<To>(), largest);
        });
    });
}

void find_largest(Cuda& on, ConstView x, float* largest) {
    visit_float(x.dtype, [&]<class From>() {
        start_quantize<From, Float8E4M3, false>(on, x, nullptr, nullptr, largest);
    });
}

void dequantize(Cuda& on, ConstView x, View y) {
    const std::int64_t n = x.numel();
    if (n == 0) return;
    visit_float8(x.dtype, [&]<class From>() {
        start(on, {grid_for(on, n, kThreads), kThreads}, &dequantize_kernel<From>, x.as<From>(), n,
              y.as<float>());
    });
}

void current_scale(Cuda& on, const float* largest, float range, bool power_of_two, float* scale) {
    start(on, {{1}, 1}, &current_scale_kernel, largest, range, power_of_two, scale);
}

void update_delayed_scales(Cuda& on, const DelayedScaling& rule, float* history, float* scales) {
    start(on, {{1}, kWarp}, &update_delayed_scales_kernel, rule, history, scales);
}

}  // namespace axle::kernels
