#include <cmath>
#include <memory>
#include <vector>

#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"

namespace axle {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::Optimizer;
using optim::SGD;
using tests::expect_error;
using tests::parameters;
using tests::Params;
using tests::set_gradients;
using tests::values;

TEST(Optimizer, UpdatesHalfPrecisionParametersWithF32State) {
    for (const DType dtype : {f32, bf16, f16}) {
        const Params params = parameters(dtype), exact = parameters();
        AdamW optimizer(params, {.lr = 0.01}), reference(exact, {.lr = 0.01});
        for (int t = 1; t <= 5; ++t) {
            set_gradients(params, t), set_gradients(exact, t);
            optimizer.step(), reference.step();
        }
        EXPECT_EQ(optimizer.state(params[0])->buffers[0].dtype(), f32);
        for (std::size_t i = 0; i < 2; ++i)
            tests::expect_close(params[i], exact[i], dtype == f32 ? 1e-6 : 0.02);
    }
}

TEST(Optimizer, SkipsParametersWithoutGradient) {
    const Params params = parameters();
    Adam optimizer(params);
    set_gradients(params, 1);
    params[1].zero_grad();
    const std::vector<double> before = params[1].to_vector();
    optimizer.step();
    EXPECT_EQ(params[1].to_vector(), before);
    EXPECT_EQ(optimizer.state(params[1]), nullptr);
    EXPECT_EQ(optimizer.state(params[0])->step.item(), 1);
    set_gradients(params, 2);
    optimizer.step();
    EXPECT_EQ(optimizer.state(params[1])->step.item(), 1);
    EXPECT_EQ(optimizer.state(params[0])->step.item(), 2);
}

TEST(Optimizer, DoesNothingWithoutGradients) {
    const Params params = parameters();
    AdamW(params).step();
    EXPECT_EQ(values(params), values(parameters()));
}

TEST(Optimizer, UsesTheLearningRateChangedInParamGroups) {
    const Params params = parameters();
    SGD optimizer(params, {.lr = 1});
    optimizer.param_groups()[0].lr = 0.5;
    Optimizer& any = optimizer;
    EXPECT_EQ(any.param_groups()[0].lr, 0.5);
    any.param_groups()[0].lr = 0.25;
    set_gradients(params, 1);
    const double expected = params[0].to_vector()[0] - 0.25 * params[0].grad().to_vector()[0];
    optimizer.step();
    EXPECT_DOUBLE_EQ(params[0].to_vector()[0], expected);
}

TEST(SGD, StartsMomentumThatIsEnabledLaterWithTheGradient) {
    const Params params = parameters();
    SGD optimizer(params, {.lr = 0.1});
    set_gradients(params, 1);
    optimizer.step();
    EXPECT_EQ(optimizer.state(params[0]), nullptr);
    optimizer.param_groups()[0].momentum = 0.9;
    set_gradients(params, 2);
    optimizer.step();
    tests::expect_close(optimizer.state(params[0])->buffers[0], params[0].grad(), 1e-15);
}

TEST(Optimizer, AddsGroupsAndRejectsDuplicateParameters) {
    const Params params = parameters();
    SGD optimizer({params[0]}, {.lr = 1});
    optimizer.add_param_group({{params[1]}, {.lr = 0}});
    EXPECT_EQ(optimizer.parameters().size(), 2u);
    expect_error<ValueError>({"SGD: parameter 0 of shape [3] appears more than once"}, [&] {
        optimizer.add_param_group({{params[1]}, {}});
    });
}

TEST(Optimizer, UpdatesParameterAfterItGetsNewStorage) {
    const Params params = parameters(), same = parameters();
    AdamW optimizer(params, {.lr = 0.1}), reference(same, {.lr = 0.1});
    for (int t = 1; t <= 4; ++t) {
        set_gradients(params, t), set_gradients(same, t);
        optimizer.step(), reference.step();
        params[0].set_data(params[0].detach().clone());
    }
    EXPECT_EQ(values(params), values(same));
}

TEST(Optimizer, ConvertsStateToPrecisionOfParameter) {
    const Params params = parameters();
    AdamW optimizer(params);
    set_gradients(params, 1);
    optimizer.step();
    params[0].set_data(params[0].detach().to(f32));
    set_gradients(params, 2);
    optimizer.step();
    EXPECT_EQ(optimizer.state(params[0])->buffers[1].dtype(), f32);
    EXPECT_EQ(optimizer.state(params[0])->step.item(), 2);
}

TEST(Optimizer, UpdatesStridedParametersInPlace) {
    Tensor base = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = f64});
    Tensor strided = base.transpose(0, 1);
    strided.set_requires_grad();
    strided.set_grad(tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = f64}).transpose(0, 1));
    SGD optimizer({strided}, {.lr = 0.5});
    optimizer.step();
    EXPECT_EQ(base.to_vector(), (std::vector<double>{0.5, 1, 1.5, 2, 2.5, 3}));
}

TEST(Optimizer, ClearsOrFillsGradientsInZeroGrad) {
    const Params params = parameters();
    SGD optimizer(params);
    params[0].set_grad(ones_like(params[0].detach()));
    optimizer.zero_grad(false);
    EXPECT_EQ(params[0].grad().to_vector(), std::vector<double>(6, 0));
    EXPECT_FALSE(params[1].grad().defined());
    optimizer.zero_grad();
    EXPECT_FALSE(params[0].grad().defined());
}

TEST(Optimizer, UsesStateDictLayoutOfPyTorch) {
    const Params params = parameters(f32);
    AdamW optimizer({{{params[0]}, {.lr = 0.1, .betas = {0.9, 0.95}}}, {{params[1]}, {}}});
    set_gradients(params, 1);
    params[0].zero_grad();
    optimizer.step();
    const Tree tree = optimizer.state_dict();
    EXPECT_EQ(to_json(tree["param_groups"], -1), to_json(from_json(R"([
        {"lr": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01, "amsgrad": false,
         "maximize": false, "params": [0]},
        {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "amsgrad": false,
         "maximize": false, "params": [1]}])"),
                                                         -1));
    ASSERT_EQ(tree["state"].size(), 1u);
    const Tree& state = tree["state"]["1"];
    EXPECT_EQ(state["step"].tensor().item(), 1);
    EXPECT_EQ(state["step"].tensor().dim(), 0);
    EXPECT_EQ(state["exp_avg"].tensor().shape(), Shape({3}));
    EXPECT_EQ(state["exp_avg_sq"].tensor().dtype(), f32);
    EXPECT_FALSE(state.contains("max_exp_avg_sq"));

    SGD sgd(params, {.momentum = 0.9});
    sgd.step();
    EXPECT_EQ(sgd.state_dict()["state"]["1"].entries().size(), 1u);
    EXPECT_TRUE(sgd.state_dict()["state"]["1"].contains("momentum_buffer"));
}

TEST(Optimizer, RejectsMismatchedStateDictWithoutChanges) {
    const Params params = parameters();
    AdamW one(params), two({{{params[0]}, {}}, {{params[1]}, {}}});
    expect_error<ValueError>({"AdamW: load_state_dict: the number of groups differs: 2 in the "
                              "state, 1 in the optimizer"},
                             [&] { one.load_state_dict(two.state_dict()); });
    AdamW half({params[0]}, {.lr = 7});
    expect_error<ValueError>(
        {"AdamW: load_state_dict: the size of group 0 differs: 1 parameters in the state, 2 in the "
         "optimizer"},
        [&] { one.load_state_dict(half.state_dict()); });
    AdamW swapped({params[1], params[0]}, {.lr = 7});
    set_gradients(params, 1);
    swapped.step();
    expect_error<ShapeError>(
        {"AdamW: load_state_dict: exp_avg must be [3, 2] for a parameter of shape [3, 2], not [3]"},
        [&] { one.load_state_dict(swapped.state_dict()); });
    EXPECT_EQ(one.param_groups()[0].lr, 1e-3);
    EXPECT_EQ(one.state(params[0]), nullptr);
}

TEST(SGD, InitializesMomentumInFirstExecutedStep) {
    const Params params = parameters(), others = parameters();
    SGD optimizer(params, {.momentum = 0.9, .dampening = 0.5});
    SGD other(others, {.momentum = 0.9, .dampening = 0.5});
    optimizer.set_scalars(tensor({1, 1, 1}, {3}, {.dtype = f64}));
    set_gradients(params, 1), set_gradients(others, 1);
    optimizer.step();
    other.load_state_dict(optimizer.state_dict());
    optimizer.set_scalars({});
    optimizer.step(), other.step();
    EXPECT_EQ(values(params), values(others));
    tests::expect_close(other.state(others[0])->buffers[0], others[0].grad(), 1e-15);
}

struct FixedPlan : optim::OptimizerHooks {
    explicit FixedPlan(optim::StepPlan plan_) : plan(std::move(plan_)) {}
    optim::StepPlan before_step(Optimizer&) override { return plan; }
    bool before_zero_grad(Optimizer&) override { return plan.allowed; }

    optim::StepPlan plan;
};

TEST(Optimizer, SkipsStepAndZeroGradIfHooksRequestIt) {
    const Params params = parameters();
    SGD optimizer(params, {.lr = 1});
    optimizer.set_hooks(std::make_shared<FixedPlan>(optim::StepPlan{.allowed = false}));
    set_gradients(params, 1);
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_EQ(values(params), values(parameters()));
    EXPECT_TRUE(params[0].grad().defined());
    optimizer.set_hooks(nullptr);
    optimizer.step();
    EXPECT_NE(values(params), values(parameters()));
}

TEST(Optimizer, UsesTheScalarsThatHooksReturnInTheStepPlan) {
    const Params params = parameters();
    SGD optimizer(params, {.lr = 1});
    const auto hooks = std::make_shared<FixedPlan>(
        optim::StepPlan{.scalars = tensor({1, 1, 1}, {3}, {.dtype = f64})});
    optimizer.set_hooks(hooks);
    set_gradients(params, 1);
    optimizer.step();
    EXPECT_TRUE(optimizer.step_was_skipped());
    hooks->plan.scalars = std::nullopt;  // keeps the current scalars
    optimizer.step();
    EXPECT_TRUE(optimizer.step_was_skipped());
    EXPECT_EQ(values(params), values(parameters()));
    hooks->plan.scalars = Tensor();  // removes the scalars
    optimizer.step();
    EXPECT_FALSE(optimizer.step_was_skipped());
    EXPECT_NE(values(params), values(parameters()));
}

TEST(Optimizer, SkipsStepWithoutCountingItOnFoundInf) {
    const Params params = parameters();
    AdamW optimizer(params);
    Tensor scalars = tensor({1, 1, 1}, {3}, {.dtype = f64});
    optimizer.set_scalars(scalars);
    set_gradients(params, 1);
    optimizer.step();
    EXPECT_TRUE(optimizer.step_was_skipped());
    EXPECT_EQ(values(params), values(parameters()));
    EXPECT_EQ(optimizer.state(params[0])->step.item(), 0);
    scalars.data<double>()[2] = 0;
    EXPECT_TRUE(optimizer.step_was_skipped());
    optimizer.step();
    EXPECT_FALSE(optimizer.step_was_skipped());
    EXPECT_EQ(optimizer.state(params[0])->step.item(), 1);
}

TEST(Optimizer, IncrementsVersionOfUpdatedParameters) {
    const Params params = parameters();
    SGD optimizer(params);
    set_gradients(params, 1);
    const auto before = params[0].version();
    optimizer.step();
    EXPECT_NE(params[0].version(), before);
}

TEST(Optimizer, AllocatesNoTensorMemoryAfterTheFirstStep) {
    const Params params = parameters();
    AdamW optimizer(params);
    set_gradients(params, 1);
    optimizer.step();
    const auto before = host_memory::stats().allocations;
    for (int i = 0; i < 3; ++i) optimizer.step();
    EXPECT_EQ(host_memory::stats().allocations, before);
}

TEST(Optimizer, RejectsInvalidParametersAndOptions) {
    const Params params = parameters();
    expect_error<ValueError>({"AdamW: the list of parameters must not be empty"},
                             [] { AdamW(Params{}); });
    expect_error<ValueError>({"SGD: the list of groups must not be empty"},
                             [] { SGD(std::vector<SGD::Group>{}); });
    expect_error<ValueError>({"SGD: parameter 1 of shape [3, 2] appears more than once"}, [&] {
        SGD({params[0], params[0]});
    });
    expect_error<ValueError>({"Adam: parameter 0 of shape [3] is the result of an operation"},
                             [&] { Adam({params[1] * 2}); });
    expect_error<ValueError>({"AdamW: lr must be 0 or more: -1"},
                             [&] { AdamW(params, {.lr = -1}); });
    expect_error<ValueError>({"AdamW: betas must be in [0, 1): [0.9, 1]"}, [&] {
        AdamW(params, {.betas = {0.9, 1}});
    });
    expect_error<ValueError>({"SGD: nesterov needs momentum above 0 and dampening 0"},
                             [&] { SGD(params, {.nesterov = true}); });
}

}  // namespace
}  // namespace axle
