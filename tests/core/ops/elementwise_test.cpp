#include "core/elementwise.h"

#include <cmath>
#include <limits>

#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

TEST(NanToNum, ReplacesInfinitiesByTheLargestFiniteNumbersOfTheDType) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const DType dtype : {f64, f32, f16, bf16}) {
        const Tensor y =
            nan_to_num(tensor({kInfinity, -kInfinity, std::nanf("")}).to(dtype)).to(f64);
        const double largest = y[0].item();
        EXPECT_EQ(y[1].item(), -largest) << dtype;
        EXPECT_EQ(y[2].item(), 0) << dtype;
        // In this dtype, the power of two above the largest finite number is an infinity.
        const double above = std::ldexp(1.0, std::ilogb(largest) + 1);
        EXPECT_EQ(full({}, above, {f64}).to(dtype).to(f64).item(),
                  std::numeric_limits<double>::infinity())
            << dtype;
        // All bits of the fraction are 1, so adding one unit in the last place gives this power of
        // two.
        const double unit = dtype == f64   ? 0x1p971
                            : dtype == f32 ? 0x1p104
                            : dtype == f16 ? 32
                                           : 0x1p120;
        EXPECT_EQ(largest + unit, above) << dtype;
    }
}

TEST(Abs, MakesNegativeZeroPositive) {
    for (const DType dtype : {f64, f32, f16, bf16}) {
        const Tensor y = abs(tensor({-0.0, 0.0, -2.0}, {3}, {dtype})).to(f64);
        EXPECT_FALSE(std::signbit(y[0].item())) << dtype;
        EXPECT_FALSE(std::signbit(y[1].item())) << dtype;
        EXPECT_EQ(y[2].item(), 2) << dtype;
    }
}

TEST(BitwiseNot, IsItsOwnInverseForUnsignedBytes) {
    const Tensor x = arange(256).to(u8);
    const Tensor y = bitwise_not(x);
    EXPECT_EQ(y.dtype(), u8);
    tests::expect_same_bits(y, (255 - arange(256)).to(u8));
    tests::expect_same_bits(bitwise_not(y), x);
}

}  // namespace
}  // namespace axle
