#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;

struct Operands {
    Tensor q = randn({2, 4, 5, 3}, {.dtype = f64});
    Tensor k = randn({2, 2, 7, 3}, {.dtype = f64});
    Tensor v = randn({2, 2, 7, 3}, {.dtype = f64});
};

TEST(ScaledDotProductAttention, ComputesTheGradientOfAMaskWithDropout) {
    const Operands x;
    const Tensor start = randn({5, 7}, {.dtype = f64}), direction = randn({5, 7}, {.dtype = f64});
    const auto loss_at = [&](const Tensor& mask) {
        manual_seed(3);
        return sum(
            square(scaled_dot_product_attention(x.q, x.k, x.v, {.mask = mask, .dropout_p = 0.25})));
    };
    Tensor mask = start.clone().set_requires_grad();
    loss_at(mask).backward();
    // The mask requires a gradient in every call, because other masks use another implementation,
    // which drops other weights.
    const auto value_at = [&](double step) {
        Tensor near = (start + direction * step).set_requires_grad();
        return loss_at(near).item();
    };
    const double slope = (value_at(1e-5) - value_at(-1e-5)) / 2e-5;
    EXPECT_NEAR(sum(mask.grad() * direction).item(), slope, 1e-7 * std::abs(slope) + 1e-8);
}

TEST(ScaledDotProductAttention, RejectsKeysAndValuesOfDifferentLengths) {
    const Operands x;
    expect_error<ShapeError>(
        {"scaled_dot_product_attention: k and v must have the same shape, except for the head size",
         "[2, 2, 6, 3]"},
        [&] {
            scaled_dot_product_attention(x.q, x.k, zeros({2, 2, 6, 3}, {.dtype = f64}));
        });
}

TEST(ScaledDotProductAttention, ReturnsZeroForFullyMaskedQueriesWithValuesOfAnotherHeadSize) {
    const Operands x;
    Tensor mask = zeros({5, 7}, {.dtype = f64});
    mask[2].fill_(-std::numeric_limits<double>::infinity());
    mask.set_requires_grad();
    const Tensor v = randn({2, 2, 7, 6}, {.dtype = f64});
    const Tensor y = scaled_dot_product_attention(x.q, x.k, v, {.mask = mask});
    EXPECT_EQ(y.shape(), (Shape{2, 4, 5, 6}));
    EXPECT_EQ(max(abs(y.select(2, 2))).item(), 0);
    EXPECT_GT(max(abs(y.select(2, 1))).item(), 0);
    sum(y).backward();
    EXPECT_TRUE(all(isfinite(mask.grad())).item());
}

}  // namespace
}  // namespace axle
