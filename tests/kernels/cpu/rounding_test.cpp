#include "kernels/ops/rounding.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace axle::kernels {
namespace {

template <class T>
class StochasticRounding : public testing::Test {};
using Types = testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(StochasticRounding, Types);

template <class T>
T of_bits(unsigned bits) {
    T value(0.0f);
    value.bits = static_cast<std::uint16_t>(bits);
    return value;
}

// The bits of the largest finite value.
template <class T>
constexpr unsigned kLargest = std::is_same_v<T, Half> ? 0x7bff : 0x7f7f;

// Returns for how many of the 2^16 random numbers `value` is rounded to `upper`, the neighbor away
// from zero. For all other random numbers it must be rounded to `lower`.
template <class T>
int count_rounded_up(float value, T lower, T upper) {
    int count = 0;
    for (std::uint32_t random = 0; random < 0x10000; ++random) {
        const T y = round_stochastically<T>(value, random);
        if (y.bits == upper.bits && upper.bits != lower.bits)
            ++count;
        else
            EXPECT_EQ(y.bits, lower.bits) << value << " by " << random;
    }
    return count;
}

TYPED_TEST(StochasticRounding, KeepsRepresentableValues) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
        const auto x = of_bits<TypeParam>(bits);
        for (const std::uint32_t random : {0u, 1u, 0x7fffu, 0x8000u, 0xffffu}) {
            const auto y = round_stochastically<TypeParam>(x, random);
            if (std::isnan(static_cast<float>(x)))
                ASSERT_TRUE(std::isnan(static_cast<float>(y))) << bits;
            else
                ASSERT_EQ(y.bits, bits) << random;
        }
    }
}

// Each value is between two neighboring numbers. Some neighbors are subnormal, and some are powers
// of two.
TYPED_TEST(StochasticRounding, RoundsUpInProportionToTheDistance) {
    for (const unsigned bits : {0u, 1u, 2u, 0x3fu, 0x7fu, 0x80u, 0x3ffu, 0x400u, 0x401u, 0x3bffu,
                                0x3c00u, 0x3f7fu, 0x3f80u, 0x7bfeu, kLargest<TypeParam> - 1}) {
        for (const unsigned sign : {0u, 0x8000u}) {
            const auto lower = of_bits<TypeParam>(bits | sign);
            const auto upper = of_bits<TypeParam>((bits + 1) | sign);
            for (const double part : {1.0 / 256, 0.25, 0.5, 0.75, 255.0 / 256}) {
                const double low = static_cast<float>(lower), high = static_cast<float>(upper);
                const auto value = static_cast<float>(low + (high - low) * part);
                EXPECT_EQ(count_rounded_up(value, lower, upper), static_cast<int>(part * 0x10000))
                    << bits << " " << part;
            }
        }
    }
}

TEST(StochasticRoundingOfHalf, RoundsFractionsOfTheSmallestSubnormal) {
    const float step = 0x1p-24f;
    EXPECT_EQ(count_rounded_up(step * 0x1p-16f, Half(0.0f), Half(step)), 1);
    EXPECT_EQ(count_rounded_up(step * 0x1p-17f, Half(0.0f), Half(step)), 0);
    EXPECT_EQ(count_rounded_up(step * 5.0f / 0x10000, Half(0.0f), Half(step)), 5);
    EXPECT_EQ(count_rounded_up(std::numeric_limits<float>::denorm_min(), Half(0.0f), Half(step)),
              0);
}

TYPED_TEST(StochasticRounding, RoundsToInfinityOnlyFromThePowerOfTwoAboveTheLargestValue) {
    const auto largest = of_bits<TypeParam>(kLargest<TypeParam>);
    const auto infinite = of_bits<TypeParam>(kLargest<TypeParam> + 1);
    const float power = 2.0f * std::exp2f(std::floor(std::log2f(largest)));
    EXPECT_EQ(count_rounded_up(std::nextafter(power, 0.0f), largest, largest), 0);
    EXPECT_EQ(count_rounded_up(power, infinite, infinite), 0);
    EXPECT_EQ(count_rounded_up(std::numeric_limits<float>::infinity(), infinite, infinite), 0);
    const auto negative = of_bits<TypeParam>(0x8000 | kLargest<TypeParam>);
    EXPECT_EQ(count_rounded_up(-std::nextafter(power, 0.0f), negative, negative), 0);
}

TYPED_TEST(StochasticRounding, KeepsNaN) {
    const std::vector<std::uint32_t> nans = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff};
    for (const std::uint32_t nan : nans)
        for (const std::uint32_t random : {0u, 0xffffu})
            EXPECT_TRUE(std::isnan(static_cast<float>(
                round_stochastically<TypeParam>(std::bit_cast<float>(nan), random))));
}

}  // namespace
}  // namespace axle::kernels
