#include "core/elementwise.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(NanToNum, ReplacesInfinitiesByTheLargestFiniteNumbersAndNanByZero) {
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

TEST(AllClose, ComparesWithTolerancesAndTreatsNanAsDifferentByDefault) {
    const Tensor a = tensor({1.0, 100.0, kInfinity});
    EXPECT_TRUE(allclose(a, tensor({1.0, 100.0005, kInfinity})));
    EXPECT_FALSE(allclose(a, tensor({1.0, 100.5, kInfinity})));
    EXPECT_TRUE(allclose(a, tensor({1.0, 100.5, kInfinity}), {.rtol = 0.01}));
    EXPECT_FALSE(allclose(a, tensor({1.0, 100.0, -kInfinity})));
    const Tensor nan = tensor({NAN});
    EXPECT_FALSE(allclose(nan, nan));
    EXPECT_TRUE(allclose(nan, nan, {.equal_nan = true}));
    EXPECT_TRUE(allclose(zeros({0}), zeros({0})));
}

TEST(IsClose, DistinguishesIntegersThatDoublesCannotRepresent) {
    constexpr std::int64_t kLarge = (std::int64_t{1} << 53) + 1;
    const Tensor a = tensor(std::vector<std::int64_t>{kLarge, -kLarge, INT64_MAX, 3}, {4});
    const Tensor b = tensor(std::vector<std::int64_t>{kLarge - 1, -kLarge, INT64_MIN, 5}, {4});
    const std::vector<double> only_equal = {0, 1, 0, 0}, within_one = {1, 1, 0, 0};
    EXPECT_EQ(isclose(a, b, {.rtol = 0, .atol = 0}).to_vector(), only_equal);
    EXPECT_EQ(isclose(a, b, {.rtol = 0, .atol = 0.5}).to_vector(), only_equal);
    EXPECT_EQ(isclose(a, b, {.rtol = 0, .atol = 1}).to_vector(), within_one);
    EXPECT_FALSE(allclose(a, b, {.rtol = 0, .atol = 0}));
}

TEST(Equal, ComparesShapesAndElements) {
    EXPECT_TRUE(equal(arange(3), arange(3)));
    EXPECT_TRUE(equal(arange(3), arange(3).to(f32)));
    EXPECT_FALSE(equal(arange(3), arange(1, 4)));
    EXPECT_FALSE(equal(arange(3), arange(3).reshape({1, 3})));
    EXPECT_FALSE(equal(tensor({NAN}), tensor({NAN})));
    EXPECT_TRUE(equal(zeros({0, 2}), zeros({0, 2})));
}

TEST(Signbit, IsTrueForNegativeZeroAndAgreesWithCopysign) {
    for (const DType dtype : {f64, f32, f16, bf16}) {
        const Tensor x = tensor({-0.0, 0.0, -2.0, -kInfinity, 1.0}, {5}, {dtype});
        EXPECT_TRUE(equal(signbit(x), tensor({1, 0, 1, 1, 0}).to(boolean))) << dtype;
        const Tensor y = copysign(ones({5}, {dtype}), x);
        EXPECT_TRUE(equal(y, tensor({-1.0, 1.0, -1.0, -1.0, 1.0}, {5}, {dtype}))) << dtype;
    }
}

TEST(Hypot, NeitherOverflowsNorUnderflows) {
    for (const double scale : {1e30, 1e-30}) {
        const Tensor a = tensor({3 * scale}, {1}, {f32}), b = tensor({4 * scale}, {1}, {f32});
        EXPECT_NEAR(hypot(a, b).item() / scale, 5, 1e-5) << scale;
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
