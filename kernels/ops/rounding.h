// Stochastic rounding to the 16-bit types. A value is rounded to one of its two neighbors. The
// probability of rounding away from zero is the fraction of the step that is cut off, with a
// precision of 2^-16. So the mean of many roundings is the value itself. Representable values, NaN
// and infinities are unchanged. Values between the largest finite value and the next power of two
// become the largest finite value, not infinity.
//
// Element i of a call uses 16 random bits: half i % 8 of Philox block offset + i / 8. The lower
// half of a word comes before the upper half.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/half.h"

namespace axle::kernels {

// Rounds x with 16 random bits; `random` must be below 2^16.
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
    if (magnitude >= 0x47800000u) return Half(x);  // the value is at least 2^16
    if (magnitude >= 0x38800000u) {
        // The subtraction changes the exponent bias, and the shift cuts off 13 bits.
        magnitude = (magnitude + (random >> 3) - 0x38000000u) >> 13;
    } else {
        // In units of 2^-40, the distance between two subnormals is 2^16.
        const float units = std::bit_cast<float>(magnitude) * 0x1p40f;
        magnitude = (static_cast<std::uint32_t>(units) + random) >> 16;
    }
    Half y(0.0f);
    y.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) |
                                        (magnitude < 0x7bffu ? magnitude : 0x7bffu));
    return y;
}

}  // namespace axle::kernels
