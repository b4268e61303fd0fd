// Quantization to 8 bits, conversion back to f32, and the scales, one element at a time. This is
// not optimized, because fp8 on CPUs is only used to test GPU programs.
#include "kernels/ops/quantize.h"

#include <algorithm>

#include "kernels/cpu/chunks.h"
#include "kernels/rules/quantize_rules.h"

namespace axle::kernels {
namespace {

// Calls f(i) for all elements. f(i) processes element i and returns magnitude_bits(x[i]), or any
// number if `largest` is null. If `largest` is not null, *largest becomes the maximum of itself and
// all magnitudes.
template <class F>
void over_chunks(Cpu& on, std::int64_t n, float* largest, F&& f) {
    const std::int64_t chunks = (n + kChunk - 1) / kChunk;
    Scratch scratch(on);
    auto* const parts = scratch.take<std::uint32_t>(chunks);
    parallel(chunks, [&](std::int64_t chunk) {
        const std::int64_t end = std::min(n, (chunk + 1) * kChunk);
        std::uint32_t most = 0;
        for (std::int64_t i = chunk * kChunk; i < end; ++i) most = std::max(most, f(i));
        parts[chunk] = most;
    });
    if (largest == nullptr) return;
    std::uint32_t most = magnitude_bits(*largest);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) most = std::max(most, parts[chunk]);
    *largest = std::bit_cast<float>(most);
}

}  // namespace

void quantize(Cpu& on, ConstView x, const float* scale, View y, float* largest) {
    visit_float(x.dtype, [&]<class From>() {
        visit_float8(y.dtype, [&]<class To>() {
            const float factor = scale[0];
            over_chunks(on, x.numel(), largest, [&](std::int64_t i) {
                const auto value = static_cast<float>(x.as<From>()[i]);
                y.as<To>()[i] = To(value * factor);
                return magnitude_bits(value);
            });
        });
    });
}

void find_largest(Cpu& on, ConstView x, float* largest) {
    visit_float(x.dtype, [&]<class From>() {
        over_chunks(on, x.numel(), largest, [&](std::int64_t i) {
            return magnitude_bits(static_cast<float>(x.as<From>()[i]));
        });
    });
}

void dequantize(Cpu& on, ConstView x, View y) {
    visit_float8(x.dtype, [&]<class From>() {
        over_chunks(on, x.numel(), nullptr, [&](std::int64_t i) {
            y.as<float>()[i] = x.as<From>()[i];
            return 0u;
        });
    });
}

void current_scale(Cpu&, const float* largest, float range, bool power_of_two, float* scale) {
    set_current_scale(*largest, range, power_of_two, scale);
}

void update_delayed_scales(Cpu&, const DelayedScaling& rule, float* history, float* scales) {
    for (int i = 0; i < 3; ++i) update_delayed_scale(rule, i, history, scales);
}

bool float8_matmul(Cpu&, ConstView, ConstView, const float*, const float*, bool, View) {
    return false;
}

}  // namespace axle::kernels
