// Tests properties of reductions and products that the op cases do not cover.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

using Values = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Sum, WrapsAroundForIntegersAsDoesProd) {
    const Tensor row = tensor(std::vector<std::int64_t>{INT64_MAX, 1}, {2});
    EXPECT_EQ(sum(row).item_int(), INT64_MIN);
    EXPECT_EQ(sum(stack({row, row}, 1), {0})[1].item_int(), INT64_MIN);
    EXPECT_EQ(prod(tensor(std::vector<std::int64_t>{INT64_MAX, 2}, {2})).item_int(), -2);
    // A long row is summed in parts. n (2^63 - 1) is -n modulo 2^64, because n is even.
    const std::int64_t n = 1 << 18;
    EXPECT_EQ(sum(full({n}, INT64_MAX)).item_int(), -n);
}

TEST(LogSumExp, HasZeroGradientIfAllElementsAreMinusInfinity) {
    const Tensor x = full({2, 2}, -kInfinity).set_requires_grad();
    const Tensor y = logsumexp(x, 1);
    EXPECT_EQ(y.to_vector(), (Values{-kInfinity, -kInfinity}));
    sum(y).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0, 0, 0}));
}

TEST(Bincount, AddsWeightsInF32IfTheyAreF32AndElseInF64) {
    const Tensor x = tensor({1, 1, 3});
    const Tensor weights = tensor({0.5, 2.0, 4.0});
    EXPECT_EQ(bincount(x, weights).to_vector(), (Values{0, 2.5, 0, 4}));
    EXPECT_EQ(bincount(x, weights).dtype(), f32);
    EXPECT_EQ(bincount(x, to(weights, f16)).dtype(), f64);
}

TEST(Bincount, ReturnsMinlengthZerosForAnEmptyOperand) {
    EXPECT_EQ(bincount(zeros({0}, {i64}), {}, 3).to_vector(), (Values{0, 0, 0}));
}

TEST(Unique, ReturnsPositionsThatRestoreTheOperand) {
    const Tensor x = tensor({3, 1, 3, 2, 1, 3}, {2, 3});
    const UniqueElements u = unique(x);
    EXPECT_EQ(u.values.to_vector(), (Values{1, 2, 3}));
    EXPECT_EQ(u.counts.to_vector(), (Values{2, 1, 3}));
    const Tensor restored = index_select(u.values, 0, reshape(u.inverse, -1));
    EXPECT_TRUE(all(eq(reshape(restored, x.shape()), x)).item<bool>());
}

TEST(Unique, TreatsEachNanAsAValueOfItsOwn) {
    const UniqueElements u = unique(tensor({kNan, 1.0, kNan}));
    EXPECT_EQ(u.values.numel(), 3);
    EXPECT_EQ(u.counts.to_vector(), (Values{1, 1, 1}));
}

// The bisection of torch.searchsorted, which continues after NaN, gives these positions.
TEST(Searchsorted, TreatsNanInTheSortedTensorLikePyTorch) {
    const double nan = std::nan("");
    const Tensor values = tensor({0.5, 1.5, 3.0, nan});
    for (const bool right : {false, true}) {
        EXPECT_EQ(searchsorted(tensor({1.0, 2.0, 3.0, nan}), values, right).to_vector(),
                  (std::vector<double>{0, 1, right ? 4.0 : 2.0, 4}));
        EXPECT_EQ(searchsorted(tensor({1.0, nan, nan}), values, right).to_vector(),
                  (std::vector<double>{3, 3, 3, 3}));
    }
}

TEST(Median, ReturnsTheFirstNanOfARowAndNanmedianIgnoresNan) {
    const auto [values, indices] = median(tensor({1.0, kNan, 0.0, kNan}), 0);
    EXPECT_TRUE(std::isnan(values.item()));
    EXPECT_EQ(indices.item_int(), 1);
    EXPECT_EQ(nanmedian(tensor({1.0, kNan, 0.0, kNan})).item(), 0);
}

TEST(MatrixPower, ReturnsCopyForExponentOne) {
    const Tensor x = ones({2, 2});
    const Tensor y = matrix_power(x, 1);
    EXPECT_FALSE(y.is_same(x));
    EXPECT_NE(y.impl()->storage, x.impl()->storage);
}

TEST(Einsum, IgnoresSpacesAndBroadcastsSizesOfOne) {
    const Tensor a = ones({1, 3}), b = ones({4, 2});
    const Tensor y = einsum(" i j , j k -> i k ", {tensor({2.0, 3.0}, {2, 1}), b});
    EXPECT_EQ(y.to_vector(), (Values{8, 8, 12, 12}));
    EXPECT_EQ(einsum("ij,ik->jk", {a, b}).shape(), (Shape{3, 2}));
}

TEST(Addmm, IgnoresValuesOfOperandIfBetaIsZero) {
    const Tensor nan = full({2, 2}, kNan);
    EXPECT_EQ(addmm(nan, ones({2, 2}), ones({2, 2}), 0).to_vector(), (Values{2, 2, 2, 2}));
}

}  // namespace
}  // namespace axle
