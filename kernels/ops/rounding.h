// Stochastic rounding to the 16-bit types: up or down to a neighbour, up with the probability that
// the part cut off has of a whole step, so that the mean of many roundings is the value itself, to
// 2^-16 of a step. A value of the type stays what it is, NaN and infinities too. What lies between
// the largest finite value and the power of two behind it becomes the former, not infinite.
//
// Element i of a call rounds with 16 bits: half i % 8 of block offset + i / 8 of a Philox, the
// lower half of a word before the upper.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/half.h"

namespace axle::inline v0::kernels {

// `random` is below 2^16.
template <class T>
AXLE_HOST_DEVICE constexpr T round_stochastically(float x, std::uint32_t random);

template <>
AXLE_HOST_DEVICE constexpr BFloat16 round_stochastically(float x, std::uint32_t random) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return BFloat16(x);
    const std::uint32_t magnitude = ((bits & 0x7fffffffu) + random) >> 16;
    BFloat16 y(0.0f);
    y.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) |
                                        (magnitude < 0x7f7fu ? magnitude : 0x7f7fu));
    return y;
}

template <>
AXLE_HOST_DEVICE constexpr Half round_stochastically(float x, std::uint32_t random) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x47800000u) return Half(x);  // 2^16 and more
    if (magnitude >= 0x38800000u) {
        // 13 bits are cut off; the exponent's bias is another.
        magnitude = (magnitude + (random >> 3) - 0x38000000u) >> 13;
    } else {
        // In units of 2^-40 a step of the subnormals is 2^16.
        const float units = std::bit_cast<float>(magnitude) * 0x1p40f;
        magnitude = (static_cast<std::uint32_t>(units) + random) >> 16;
    }
    Half y(0.0f);
    y.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) |
                                        (magnitude < 0x7bffu ? magnitude : 0x7bffu));
    return y;
}

}  // namespace axle::inline v0::kernels
