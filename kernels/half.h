// The two 16-bit floating-point types. Converting them to float is exact; they have no arithmetic.
// Kernels convert to float, compute, and round the result once (to nearest, ties to even).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define AXLE_HOST_DEVICE __host__ __device__
#else
#define AXLE_HOST_DEVICE
#endif
// Executes its argument in GPU code. The argument is a GPU instruction with the same result (except
// for the bits of a NaN) as the portable code that follows the macro.
#if defined(__CUDA_ARCH__)
#define AXLE_GPU_INSTRUCTION(...) \
    if (!std::is_constant_evaluated()) __VA_ARGS__
#else
#define AXLE_GPU_INSTRUCTION(...) static_cast<void>(0)
#endif

namespace axle {

// The bfloat16 type, which is the upper 16 bits of a float.
struct BFloat16 {
    std::uint16_t bits = 0;

    BFloat16() = default;
    AXLE_HOST_DEVICE constexpr explicit BFloat16(float x) : bits(round(x)) {}
    AXLE_HOST_DEVICE constexpr operator float() const {
        return std::bit_cast<float>(std::uint32_t{bits} << 16);
    }

  private:
    AXLE_HOST_DEVICE static constexpr std::uint16_t round(float x) {
        AXLE_GPU_INSTRUCTION({
            std::uint16_t bits;
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
            return bits;
        });
        const auto u = std::bit_cast<std::uint32_t>(x);
        if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
        return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
};

// The IEEE 754 binary16 type.
struct Half {
    std::uint16_t bits = 0;

    Half() = default;
    AXLE_HOST_DEVICE constexpr explicit Half(float x) : bits(round(x)) {}
    AXLE_HOST_DEVICE constexpr operator float() const { return widen(bits); }

  private:
    // Rounds a float to binary16. For a subnormal result, adds 0.5, whose unit in the last place is
    // the distance between binary16's subnormals (2^-24), and then subtracts the bits of 0.5. So
    // the hardware rounds to nearest even.
    AXLE_HOST_DEVICE static constexpr std::uint16_t round(float x) {
        AXLE_GPU_INSTRUCTION({
            std::uint16_t bits;
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
            return bits;
        });
        const auto u = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t sign = (u >> 16) & 0x8000u;
        const std::uint32_t magnitude = u & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
        if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
        if (magnitude < 0x38800000u) {
            const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
            return static_cast<std::uint16_t>(
                sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
        }
        const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
    AXLE_HOST_DEVICE static constexpr float widen(std::uint16_t h) {
        AXLE_GPU_INSTRUCTION({
            float x;
            asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
            return x;
        });
        const std::uint32_t sign = (std::uint32_t{h} & 0x8000u) << 16;
        const std::uint32_t rest = std::uint32_t{h} & 0x7fffu;
        if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest << 13));
        if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
        const float tiny = static_cast<float>(rest) * 0x1p-24f;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(tiny));
    }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Half) == 2);

}  // namespace axle
