// Private to kernels: computes the scales of kernels/ops/quantize.h. CPU and GPU share it.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/float8.h"
#include "kernels/ops/quantize.h"

namespace axle::kernels {

// Calls f<T>() with the C++ type of t, which is f8_e4m3 or f8_e5m2.
template <class F>
void visit_float8(DType t, F&& f) {
    if (t == DType::f8_e5m2) return f.template operator()<Float8E5M2>();
    f.template operator()<Float8E4M3>();
}

// Returns the bits of |x|. Compared as unsigned integers, these bits have the order of |x|, and NaN
// is the largest.
AXLE_HOST_DEVICE inline std::uint32_t magnitude_bits(float x) {
    return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

AXLE_HOST_DEVICE inline void set_scale(float value, float* scale) {
    scale[0] = value;
    scale[1] = 1 / value;
}

// Implements current_scale(). Computes the quotient in f64, so that it is rounded only once.
AXLE_HOST_DEVICE inline void set_current_scale(float largest, float range, bool power_of_two,
                                               float* scale) {
    const double divisor = largest < 1e-12f ? 1e-12 : static_cast<double>(largest);
    auto value = static_cast<float>(range / divisor);
    // Clearing the mantissa rounds a positive float down to a power of two.
    if (power_of_two)
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7f800000u);
    set_scale(value, scale);
}

// Performs update_delayed_scales() for tensor i.
AXLE_HOST_DEVICE inline void update_delayed_scale(const DelayedScaling& rule, int i, float* history,
                                                  float* scales) {
    float* const mine = history + i;
    float largest = mine[0];
    if (!rule.most_recent)
        for (std::int64_t row = 1; row < rule.length; ++row)
            if (magnitude_bits(mine[3 * row]) > magnitude_bits(largest)) largest = mine[3 * row];
    const float first = mine[0];
    for (std::int64_t row = 0; row + 1 < rule.length; ++row) mine[3 * row] = mine[3 * (row + 1)];
    mine[3 * (rule.length - 1)] = first;
    mine[0] = 0;
    if (!rule.rescales || !(largest > 0) || !(largest <= FLT_MAX)) return;
    const float value = rule.range[i] / largest / exp2f(rule.margin);
    set_scale(value <= FLT_MAX ? value : FLT_MAX, scales + 2 * i);
}

}  // namespace axle::kernels
