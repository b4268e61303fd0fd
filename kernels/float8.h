// The two 8-bit floating-point types used in training (Micikevicius et al., "FP8 Formats for Deep
// Learning", arXiv:2209.05433). Converting them to float is exact; they have no arithmetic.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/half.h"

namespace axle {

// An 8-bit float with kMantissa mantissa bits and the exponent bias kBias. kLargest is the code of
// its largest finite number. The conversion from float rounds to nearest, ties to even. Numbers
// with a magnitude above the largest finite number of the type, including infinities, become this
// number with their sign; NaN stays NaN.
template <int kMantissa, int kBias, std::uint8_t kLargest>
struct Float8 {
    std::uint8_t bits = 0;

    Float8() = default;
    AXLE_HOST_DEVICE constexpr explicit Float8(float x) : bits(round(x)) {}
    AXLE_HOST_DEVICE constexpr operator float() const { return widen(bits); }

    AXLE_HOST_DEVICE static constexpr float largest() { return widen(kLargest); }

  private:
    static constexpr int kShift = 23 - kMantissa;
    static constexpr std::uint32_t kRebias = std::uint32_t{127 - kBias} << kMantissa;
    static constexpr std::uint32_t kSmallestNormal = std::uint32_t{128 - kBias} << 23;
    // The bits of a float that has the smallest subnormal of this type as its unit in the last
    // place. Adding this float to a value makes the hardware round the value to that unit.
    static constexpr std::uint32_t kMagic = std::uint32_t{128 - kBias + kShift} << 23;

    AXLE_HOST_DEVICE static constexpr std::uint8_t round(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        AXLE_GPU_INSTRUCTION({
            std::uint16_t pair;
            if (kMantissa == 3)
                asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
            else
                asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
            return static_cast<std::uint8_t>(pair);
        });
#endif
        const auto u = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
        if (magnitude >= std::bit_cast<std::uint32_t>(largest()))
            return static_cast<std::uint8_t>(sign | kLargest);
        if (magnitude < kSmallestNormal) {
            const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
            return static_cast<std::uint8_t>(sign |
                                             (std::bit_cast<std::uint32_t>(shifted) - kMagic));
        }
        const std::uint32_t half = (1u << (kShift - 1)) - 1;
        const std::uint32_t rounded = magnitude + half + ((magnitude >> kShift) & 1u);
        return static_cast<std::uint8_t>(sign | ((rounded >> kShift) - kRebias));
    }
    AXLE_HOST_DEVICE static constexpr float widen(std::uint8_t b) {
        const std::uint32_t sign = std::uint32_t{b & 0x80u} << 24;
        const std::uint32_t rest = b & 0x7fu;
        // Codes above the largest finite number are infinity (only in e5m2) or NaN.
        if (rest > kLargest) {
            const bool infinite = kMantissa == 2 && rest == kLargest + 1u;
            return std::bit_cast<float>(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
        }
        if (rest >> kMantissa != 0)
            return std::bit_cast<float>(sign | ((rest + kRebias) << kShift));
        const float tiny = std::bit_cast<float>(kMagic + rest) - std::bit_cast<float>(kMagic);
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(tiny));
    }
};

using Float8E4M3 = Float8<3, 7, 0x7e>;   // largest value: 448
using Float8E5M2 = Float8<2, 15, 0x7b>;  // largest value: 57344

static_assert(sizeof(Float8E4M3) == 1 && Float8E4M3::largest() == 448);
static_assert(sizeof(Float8E5M2) == 1 && Float8E5M2::largest() == 57344);

}  // namespace axle
