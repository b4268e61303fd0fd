// Tests binary cross entropy for saturated sigmoids and for probabilities near 0 and 1. Also tests
// the gradients of targets and weights. tests/cases/losses/loss.cpp compares other inputs with
// PyTorch.
#include <cmath>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

using Values = std::vector<double>;

TEST(BinaryCrossEntropyWithLogits, IsAccurateWhereSigmoidSaturates) {
    const Tensor x = tensor({1000.0, -1000.0, 1000.0, -1000.0, 30.0}).set_requires_grad();
    const Tensor target = tensor({0.0, 1.0, 1.0, 0.0, 1.0});
    const Tensor losses =
        binary_cross_entropy_with_logits(x, target, {.reduction = Reduction::none});
    const Values values = losses.to_vector();
    EXPECT_EQ(Values(values.begin(), values.end() - 1), (Values{1000, 1000, 0, 0}));
    EXPECT_NEAR(values.back(), std::exp(-30), 1e-6 * std::exp(-30));
    sum(losses).backward();
    const Values gradient = x.grad().to_vector();
    EXPECT_EQ(Values(gradient.begin(), gradient.end() - 1), (Values{1, -1, 0, 0}));
    EXPECT_NEAR(gradient.back(), -std::exp(-30), 1e-6 * std::exp(-30));
}

TEST(BinaryCrossEntropyWithLogits, ComputesGradientsOfTargetsAndPositiveWeight) {
    const Tensor x = tensor({2.0, -1.0}, {2}, {.dtype = f64});
    const Tensor target = tensor({0.25, 1.0}, {2}, {.dtype = f64, .requires_grad = true});
    const Tensor weight = tensor(3.0, {.dtype = f64, .requires_grad = true});
    binary_cross_entropy_with_logits(x, target, {.pos_weight = weight, .reduction = Reduction::sum})
        .backward();
    const auto softplus = [](double v) { return std::log1p(std::exp(v)); };
    const Values d = target.grad().to_vector();
    EXPECT_NEAR(d[0], 3 * softplus(-2) - softplus(2), 1e-12);
    EXPECT_NEAR(d[1], 3 * softplus(1) - softplus(-1), 1e-12);
    EXPECT_NEAR(weight.grad().item(), 0.25 * softplus(-2) + softplus(1), 1e-12);
}

// Values and gradients are the same as PyTorch's: logarithms are at least -100, and the divisor of
// the gradient is at least 1e-12.
TEST(BinaryCrossEntropy, IsFiniteForProbabilitiesZeroAndOne) {
    const Tensor p = tensor({0.0, 1.0, 0.0, 1.0}).set_requires_grad();
    const Tensor target = tensor({0.0, 1.0, 1.0, 0.0});
    const Tensor losses = binary_cross_entropy(p, target, {.reduction = Reduction::none});
    EXPECT_EQ(losses.to_vector(), (Values{0, 0, 100, 100}));
    sum(losses).backward();
    const Values gradient = p.grad().to_vector();
    EXPECT_EQ(Values(gradient.begin(), gradient.begin() + 2), (Values{0, 0}));
    EXPECT_NEAR(gradient[2], -1e12, 1e6);
    EXPECT_NEAR(gradient[3], 1e12, 1e6);
}

TEST(BinaryCrossEntropy, IsAccurateForSmallProbabilities) {
    const Tensor p = tensor({1e-9}), target = tensor({0.0});
    EXPECT_NEAR(binary_cross_entropy(p, target).item(), 1e-9, 1e-15);
}

}  // namespace
}  // namespace axle
