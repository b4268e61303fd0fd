#include "nn/layers/mixture.h"

#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle {
namespace {

using nn::MixtureOfExperts;
using nn::MixtureOptions;
using tests::expect_close;
using tests::expect_error;

constexpr std::int64_t kWidth = 6, kHidden = 5, kTokens = 14;

MixtureOfExperts mixture_of(const MixtureOptions& options) {
    manual_seed(3);
    MixtureOfExperts layer(kWidth, kHidden, options);
    layer.to(f64);
    return layer;
}

Tensor tokens() {
    manual_seed(4);
    return randn({2, kTokens / 2, kWidth}, {.dtype = f64});
}

// Returns the sum of the outputs of all experts for every token, weighted by `weights` [tokens,
// experts].
Tensor weighted_sum(const MixtureOfExperts& layer, const Tensor& x, const Tensor& weights) {
    Tensor sum = zeros(x.shape(), {.dtype = f64});
    for (std::int64_t e = 0; e < layer.options().experts; ++e) {
        const Tensor hidden = silu(linear(x, layer.experts.gate.select(0, e))) *
                              linear(x, layer.experts.up.select(0, e));
        sum = sum + linear(hidden, layer.experts.down.select(0, e)) * weights.narrow(1, e, 1);
    }
    return sum;
}

Tensor probabilities_of(const MixtureOfExperts& layer, const Tensor& x) {
    return softmax(linear(x, layer.router.weight));
}

TEST(MixtureOfExperts, AddsTheOutputsOfTheChosenExperts) {
    for (const std::int64_t top_k : {1, 2, 4})
        for (const bool normalizes : {false, true}) {
            MixtureOfExperts layer =
                mixture_of({.experts = 4, .top_k = top_k, .normalizes = normalizes});
            MixtureOfExperts other = layer.clone();
            const Tensor x = tokens().set_requires_grad();
            const Tensor own = x.detach().clone().set_requires_grad();
            const Tensor flat = own.reshape({kTokens, kWidth});
            const auto [values, ids] = topk(probabilities_of(other, flat), top_k);
            const Tensor gates = normalizes ? values / sum(values, {1}, true) : values;
            const Tensor weights = scatter_add(zeros({kTokens, 4}, {.dtype = f64}), 1, ids, gates);
            const Tensor expected = weighted_sum(other, flat, weights).reshape(x.shape());
            (expected * expected).sum().backward();
            const Tensor y = layer(x);
            expect_close(y, expected, 1e-12);
            (y * y).sum().backward();
            expect_close(x.grad(), own.grad(), 1e-11);
            const auto actual = layer.parameters(), reference = other.parameters();
            for (std::size_t i = 0; i < actual.size(); ++i)
                expect_close(actual[i].grad(), reference[i].grad(), 1e-11);
            EXPECT_EQ(layer.dropped(), 0);
        }
}

// Twelve choices exceed a capacity of 2 for each of 4 experts.
TEST(MixtureOfExperts, DropsTheLastChoicesThatExceedTheCapacity) {
    MixtureOfExperts layer = mixture_of({.experts = 4, .top_k = 2, .capacity_factor = 0.5});
    {
        const NoGrad no_grad;
        Tensor weight = layer.router.weight.detach();
        weight.zero_();
        weight[2].fill_(1);  // every token chooses expert 2 first, and then expert 0
        weight[0].fill_(0.5);
    }
    const Tensor x = ones({1, 6, kWidth}, {.dtype = f64});
    const Tensor y = layer(x);
    EXPECT_EQ(layer.counts(), (std::vector<std::int64_t>{2, 0, 2, 0}));
    EXPECT_EQ(layer.dropped(), 8);
    for (std::int64_t t = 0; t < 6; ++t)
        EXPECT_EQ(max(abs(y[0][t])).item() > 0, t < 2) << "token " << t;
}

TEST(MixtureOfExperts, PrefersFirstChoicesToSecondChoices) {
    // Expert 0 is the second choice of the first token, and the first choice of the second token.
    MixtureOfExperts layer = mixture_of({.experts = 2, .top_k = 2, .capacity_factor = 0.5});
    const Tensor x = zeros({2, kWidth}, {.dtype = f64});
    x[0][0].fill_(1), x[1][1].fill_(1);
    {
        const NoGrad no_grad;
        Tensor weight = layer.router.weight.detach();
        weight.zero_();
        weight[1][0].fill_(3), weight[0][1].fill_(3);
    }
    const Tensor y = layer(x);
    EXPECT_EQ(layer.counts(), (std::vector<std::int64_t>{1, 1}));
    const Tensor gates = probabilities_of(layer, x).detach();
    Tensor kept = zeros({2, 2}, {.dtype = f64});
    kept[0][1].copy_(gates[0][1]), kept[1][0].copy_(gates[1][0]);
    expect_close(y, weighted_sum(layer, x, kept), 1e-12);
}

TEST(MixtureOfExperts, ComputesTheLoadBalancingLossAfterACallOfForward) {
    MixtureOfExperts layer = mixture_of({.experts = 4, .top_k = 2});
    expect_error<UsageError>({"MixtureOfExperts: auxiliary_loss() needs a call of forward()"},
                             [&] { layer.auxiliary_loss(); });
    const Tensor x = tokens().reshape({kTokens, kWidth});
    layer(x);
    const Tensor probabilities = probabilities_of(layer, x);
    const Tensor ids = topk(probabilities, 2).second;
    const Tensor share = sum(one_hot(ids.reshape({-1}), 4), {0}).to(f64) / (2.0 * kTokens);
    const Tensor expected = sum(share * mean(probabilities, {0})) * 4;
    expect_close(layer.auxiliary_loss(), expected, 1e-12);
    layer.auxiliary_loss().backward();
    EXPECT_GT(max(abs(layer.router.weight.grad())).item(), 0);
    // Gives all experts the same probability.
    {
        const NoGrad no_grad;
        Tensor(layer.router.weight.detach()).zero_();
    }
    layer(x);
    EXPECT_NEAR(layer.auxiliary_loss().item(), 1, 1e-12);
}

TEST(MixtureOfExperts, RejectsInvalidOptionsAndShapes) {
    const auto make = [](const MixtureOptions& options) {
        const MixtureOfExperts layer(kWidth, kHidden, options);
    };
    expect_error<ValueError>({"MixtureOfExperts: sizes must be positive: width 6, hidden 5, "
                              "experts 0, top_k 2"},
                             [&] { make({.experts = 0}); });
    expect_error<ValueError>({"MixtureOfExperts: top_k must be at most the number of experts: "
                              "top_k 3, experts 2"},
                             [&] { make({.experts = 2, .top_k = 3}); });
    expect_error<ValueError>({"MixtureOfExperts: capacity_factor must be positive and finite: 0"},
                             [&] { make({.capacity_factor = 0}); });
    MixtureOfExperts layer(kWidth, kHidden);
    expect_error<ShapeError>({"MixtureOfExperts: x must be [..., 6]: x is [2, 5]"}, [&] {
        layer(ones({2, 5}));
    });
    EXPECT_EQ(layer.named_parameters().size(), 4u);
}

}  // namespace
}  // namespace axle
