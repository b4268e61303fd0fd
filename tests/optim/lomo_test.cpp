#include "optim/lomo.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using optim::AdaLomo;
using optim::FusedOptimizer;
using optim::Lomo;
using tests::expect_error;
using tests::parameters;
using tests::Params;
using tests::values;

Tensor loss_of(const Params& params, int t) {
    std::vector<double> half, linear;
    for (int i = 0; i < 9; ++i) {
        half.push_back(0.25 + 0.05 * i);
        linear.push_back(0.5 * std::sin(0.3 * t + i));
    }
    const Tensor p = cat({flatten(params[0]), params[1]});
    return sum(tensor(half, {9}) * p * p + tensor(linear, {9}) * p);
}

using MakeFused = std::function<std::unique_ptr<FusedOptimizer>(const Params&)>;
template <class O, class Options>
MakeFused make_fused(Options options = {}) {
    return [=](const Params& params) { return std::make_unique<O>(params, options); };
}

std::map<std::string, MakeFused> recorded() {
    return {
        {"lomo", make_fused<Lomo, optim::LomoOptions>()},
        {"lomo_norm", make_fused<Lomo, optim::LomoOptions>({.clip_grad_norm = 0.3})},
        {"lomo_value", make_fused<Lomo, optim::LomoOptions>({.clip_grad_value = 0.1})},
        {"lomo_decay", make_fused<Lomo, optim::LomoOptions>({.weight_decay = 0.1})},
        {"adalomo", make_fused<AdaLomo, optim::AdaLomoOptions>()},
        {"adalomo_norm", make_fused<AdaLomo, optim::AdaLomoOptions>(
                             {.clip_threshold = 0.5, .clip_grad_norm = 0.3})},
        {"adalomo_value_decay", make_fused<AdaLomo, optim::AdaLomoOptions>({.eps = {1e-6, 0.1},
                                                                            .decay_rate = -0.5,
                                                                            .clip_grad_value = 0.2,
                                                                            .weight_decay = 0.1})}};
}

class FusedBackward : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Lomo, FusedBackward, testing::Bool(), [](const auto& at_end) {
    return at_end.param ? "AfterBackward" : "DuringBackward";
});

// Covers 3.lomo_backward.
TEST_P(FusedBackward, MatchesLomoOptimPackage) {
    const auto golden = tests::golden_json("lomo.json");
    const int steps = golden["steps"], every = golden["every"];
    const auto makers = recorded();
    ASSERT_EQ(golden["traces"].size(), makers.size());
    for (const auto& [name, maker] : makers) {
        const std::vector<std::vector<double>> rows = golden["traces"][name];
        const Params params = parameters(f32);
        const auto optimizer = maker(params);
        for (int t = 1; t <= steps; ++t) {
            FusedOptimizer::fused_backward({optimizer.get()}, loss_of(params, t), 0.05, GetParam());
            if (t % every != 0) continue;
            const std::vector<double> now = values(params);
            const auto& expected = rows[static_cast<std::size_t>(t / every - 1)];
            ASSERT_EQ(now.size(), expected.size());
            for (std::size_t i = 0; i < now.size(); ++i)
                EXPECT_NEAR(now[i], expected[i], 3e-6) << name << " step " << t << " value " << i;
        }
    }
}

TEST(Lomo, KeepsOnlyOneGradientInMemory) {
    const Params chain = {ones({4, 4}, {.requires_grad = true}),
                          ones({4, 4}, {.requires_grad = true}),
                          ones({4, 4}, {.requires_grad = true})};
    Lomo lomo(chain);
    std::size_t max_gradients = 0;
    std::vector<autograd::HookHandle> hooks;
    for (const Tensor& param : chain)
        hooks.push_back(autograd::on_leaf_final(param, [&](const Tensor&) {
            std::size_t gradients = 0;
            for (const Tensor& other : chain) gradients += other.grad().defined() ? 1 : 0;
            max_gradients = std::max(max_gradients, gradients);
        }));
    Tensor x = ones({2, 4});
    for (const Tensor& param : chain) x = relu(matmul(x, param));
    lomo.fused_backward(sum(x), 1e-3);
    EXPECT_EQ(max_gradients, 1U);
    for (const Tensor& param : chain) EXPECT_FALSE(param.grad().defined());
}

TEST(Lomo, GivesSameUpdatesAsSgd) {
    const Params ours = parameters(bf16), theirs = parameters(bf16);
    Lomo lomo(ours, {.weight_decay = 0.01});
    optim::SGD sgd(theirs, {.lr = 0.1, .weight_decay = 0.01});
    for (int t = 1; t <= 3; ++t) {
        lomo.fused_backward(loss_of(ours, t), 0.1);
        loss_of(theirs, t).backward();
        sgd.step();
        sgd.zero_grad();
    }
    EXPECT_EQ(values(ours), values(theirs));
}

// Two checkpointed parts use one weight, which gets a gradient in two recomputations. It must be
// updated once.
TEST(Lomo, UpdatesAWeightOfTwoCheckpointedCallsOnce) {
    for (const auto& clip : {std::optional<double>(), std::optional<double>(0.05)}) {
        manual_seed(6);
        const Tensor x = randn({3, 4}), start = randn({4, 4});
        std::vector<std::vector<double>> results;
        for (const bool checkpointed : {false, true}) {
            Tensor w = start.clone();
            w.set_requires_grad();
            Lomo lomo({w}, {.clip_grad_norm = clip});
            const auto part = [&](const std::vector<Tensor>& in) { return tanh(matmul(in[0], w)); };
            for (int step = 0; step < 3; ++step) {
                Tensor in = x.clone();
                in.set_requires_grad();
                const auto twice = [&](const Tensor& t) {
                    return checkpointed ? checkpoint(part, {t}) : part({t});
                };
                lomo.fused_backward(sum(twice(twice(in))), 0.1);
                EXPECT_FALSE(w.grad().defined());
            }
            results.push_back(w.to_vector());
        }
        EXPECT_EQ(results[0], results[1]);
        EXPECT_NE(results[0], start.to_vector());
    }
}

// Covers 5.LOMO.
TEST(Lomo, DoesNothingInStep) {
    const Params params = parameters(f32);
    Lomo lomo(params, {.lr = 0.1});
    const std::vector<double> before = values(params);
    loss_of(params, 1).backward();
    lomo.step();
    EXPECT_EQ(values(params), before);
    EXPECT_TRUE(params[0].grad().defined());
}

TEST(Lomo, StoresLearningRateOfFusedBackwardInItsGroup) {
    const Params params = parameters(f32);
    Lomo lomo(params, {.lr = 0.5});
    EXPECT_EQ(lomo.param_groups()[0].lr, 0.5);
    lomo.fused_backward(loss_of(params, 1), 0.25);
    EXPECT_EQ(lomo.param_groups()[0].lr, 0.25);
}

TEST(Lomo, KeepsGradientsOfOtherParametersWithNormClippingAndRejectsExistingGradients) {
    const Params params = parameters(f32);
    const Tensor foreign = ones({9}, {.requires_grad = true});
    Lomo lomo(params, {.clip_grad_norm = 1.0});
    lomo.fused_backward(loss_of(params, 1) + sum(foreign * 2.0), 0.1);
    EXPECT_EQ(foreign.grad().to_vector(), std::vector<double>(9, 2.0));
    expect_error<UsageError>({"fused_backward: with clip_grad_norm, no parameter may have a "
                              "gradient yet: a parameter of shape [9] has one; "
                              "call zero_grad() first"},
                             [&] { lomo.fused_backward(loss_of(params, 1) + sum(foreign), 0.1); });
}

TEST(LomoOptimizers, RejectInvalidParametersAndOptions) {
    const Params params = parameters(f32);
    expect_error<ValueError>({"Lomo: clip_grad_norm must be above 0: 0"},
                             [&] { Lomo(params, {.clip_grad_norm = 0.0}); });
    expect_error<ValueError>({"Lomo: lr must be 0 or more: -1"}, [&] { Lomo(params, {.lr = -1}); });
    expect_error<ValueError>({"Lomo: the list of parameters must not be empty"}, [&] { Lomo({}); });
    expect_error<ValueError>({"AdaLomo: clip_threshold must be above 0: 0"},
                             [&] { AdaLomo(params, {.clip_threshold = 0}); });
}

TEST(AdaLomo, ResumesFromASavedStateWithFactoredMoments) {
    const Params one = parameters(f32), two = parameters(f32);
    AdaLomo first(one), second(two);
    for (int t = 1; t <= 4; ++t) first.fused_backward(loss_of(one, t), 0.05);
    second.load_state_dict(first.state_dict());
    {
        const NoGrad no_grad;
        for (std::size_t i = 0; i < one.size(); ++i) two[i].detach().copy_(one[i].detach());
    }
    first.fused_backward(loss_of(one, 5), 0.05);
    second.fused_backward(loss_of(two, 5), 0.05);
    EXPECT_EQ(values(one), values(two));
    const Tree state = first.state_dict();
    EXPECT_EQ(state["state"]["0"]["exp_avg_sq_row"].tensor().shape(), (Shape{3}));
    EXPECT_EQ(state["state"]["0"]["exp_avg_sq_col"].tensor().shape(), (Shape{2}));
    EXPECT_EQ(state["state"]["1"]["exp_avg_sq"].tensor().shape(), (Shape{3}));
}

}  // namespace
}  // namespace axle
