#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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

// Returns the projection [B, T, (4 + 2 + 2) 16] as q, k and v.
std::vector<Tensor> heads_of(const Tensor& projection) {
    std::vector<Tensor> parts = split(projection, {64, 32, 32}, -1);
    for (Tensor& part : parts)
        part = part.view({projection.size(0), projection.size(1), -1, 16}).transpose(1, 2);
    return parts;
}

TEST(ScaledDotProductAttention, JoinsTheGradientsOfSlicesWithoutACopy) {
    for (const std::int64_t batch : {1, 3}) {
        const Tensor projection = randn({batch, 9, 128}).set_requires_grad();
        const std::vector<Tensor> x = heads_of(projection);
        std::vector<const void*> seen;
        std::vector<autograd::HookHandle> hooks;
        hooks.reserve(x.size());
        for (const Tensor& part : x)
            hooks.push_back(autograd::register_hook(part, [&](const Tensor& gradient) {
                seen.push_back(gradient.raw_data());
                return Tensor();
            }));
        const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true});
        const Tensor dy = randn(y.shape());
        const Tensor gradient = autograd::grad({y}, {projection}, {dy})[0];
        const float* const start = gradient.data<float>();
        ASSERT_EQ(seen.size(), 3u);
        for (const std::int64_t column : {0, 64, 96})
            EXPECT_TRUE(std::ranges::count(seen, start + column)) << column;

        std::vector<Tensor> copies;
        copies.reserve(x.size());
        for (const Tensor& part : x)
            copies.push_back(part.detach().contiguous().set_requires_grad());
        const Tensor same =
            scaled_dot_product_attention(copies[0], copies[1], copies[2], {.causal = true});
        const std::vector<Tensor> expected = autograd::grad({same}, copies, {dy});
        const std::vector<Tensor> parts = heads_of(gradient);
        for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(equal(parts[i], expected[i])) << i;
    }
}

TEST(ScaledDotProductAttention, CopiesTheGradientsOfSlicesInAnotherOrder) {
    const Tensor projection = randn({2, 9, 128}).set_requires_grad();
    const std::vector<Tensor> x = heads_of(projection);
    // The first slice is q's in the test above. Here, a half of its heads is v.
    const Tensor y = scaled_dot_product_attention(x[1], x[2], narrow(x[0], 1, 0, 2));
    const Tensor dy = randn(y.shape());
    const Tensor gradient = autograd::grad({y}, {projection}, {dy})[0];
    std::vector<Tensor> copies = {x[1].detach().clone().set_requires_grad(),
                                  x[2].detach().clone().set_requires_grad(),
                                  narrow(x[0], 1, 0, 2).detach().clone().set_requires_grad()};
    const std::vector<Tensor> expected = autograd::grad(
        {scaled_dot_product_attention(copies[0], copies[1], copies[2])}, copies, {dy});
    const std::vector<Tensor> parts = heads_of(gradient);
    EXPECT_TRUE(equal(parts[1], expected[0]));
    EXPECT_TRUE(equal(parts[2], expected[1]));
    EXPECT_TRUE(equal(narrow(parts[0], 1, 0, 2), expected[2]));
    EXPECT_EQ(max(abs(narrow(parts[0], 1, 2, 2))).item(), 0);
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
