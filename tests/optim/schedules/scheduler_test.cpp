#include "optim/schedules/scheduler.h"

#include <memory>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/algorithms/adagrad.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"

namespace axle {
namespace {

using namespace optim;  // NOLINT: every schedule
using tests::expect_error;

Tensor parameter() { return zeros({2}, {.requires_grad = true}); }

TEST(CosineWithWarmup, RisesFromZeroToLrAndDecaysToMinLr) {
    SGD optimizer({parameter()}, {.lr = 6e-4});
    auto scheduler = get_cosine_schedule_with_warmup(optimizer, 2, 10, 0.5, 0.1);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0);
    for (int i = 0; i < 2; ++i) scheduler.step();
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].lr, 6e-4);
    for (int i = 0; i < 8; ++i) scheduler.step();
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].lr, 6e-5);
}

TEST(OneCycleLR, ContinuesWithAnotherNumberOfStepsUnlessItIsTooSmall) {
    SGD a({parameter()}, {.lr = 1}), b({parameter()}, {.lr = 1});
    OneCycleLR longer(a, 1, 4), whole(b, 1, 8);
    for (int i = 0; i < 4; ++i) longer.step(), whole.step();
    expect_error<ValueError>(
        {"OneCycleLR: total_steps must be positive and at least the number of steps taken (4): 3",
         "3"},
        [&] { longer.set_total_steps(3); });
    longer.set_total_steps(8);
    for (int i = 4; i < 8; ++i) {
        longer.step(), whole.step();
        EXPECT_EQ(longer.get_last_lr(), whole.get_last_lr());
    }
    EXPECT_THROW(longer.step(), ValueError);
}

TEST(OneCycleLR, CyclesMomentumOfSgd) {
    SGD optimizer({parameter()}, {.momentum = 0.5});
    OneCycleLR scheduler(optimizer, 1, 10);
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].momentum, 0.95);
    scheduler.step();
    scheduler.step();
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].momentum, 0.85);
}

TEST(CyclicSchedules, RejectCyclingTheMomentumOfOptimizersWithoutMomentum) {
    Adagrad optimizer({parameter()});
    expect_error<ValueError>({"OneCycleLR: cycle_momentum needs an optimizer with momentum"},
                             [&] { OneCycleLR(optimizer, 1, 10); });
    expect_error<ValueError>({"CyclicLR: cycle_momentum needs an optimizer with momentum"},
                             [&] { CyclicLR(optimizer, 0.1, 1); });
    OneCycleLR scheduler(optimizer, 1, 10, {.cycle_momentum = false});
    EXPECT_NEAR(optimizer.param_groups()[0].lr, 1.0 / 25, 1e-15);
}

TEST(OneCycleLR, RejectsStepsAfterItsEnd) {
    SGD optimizer({parameter()});
    OneCycleLR scheduler(optimizer, 1, 3);
    EXPECT_EQ(scheduler.total_steps(), 3);
    for (int i = 0; i < 3; ++i) scheduler.step();
    const double lr = optimizer.param_groups()[0].lr;
    expect_error<ValueError>({"OneCycleLR: step 4 exceeds the 3 steps of the schedule"},
                             [&] { scheduler.step(); });
    EXPECT_EQ(optimizer.param_groups()[0].lr, lr);
    EXPECT_EQ(scheduler.last_epoch(), 3);
}

// ExponentialLR starts from the optimizer's current rate, and a constant schedule from the initial
// rate.
TEST(Scheduler, StartsAtTheRateOfPyTorchAfterAnotherSchedule) {
    SGD optimizer({parameter()}, {.lr = 2});
    { auto warmup = get_constant_schedule_with_warmup(optimizer, 10); }
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0);
    { ExponentialLR exponential(optimizer, 0.5); }
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0);
    auto constant = get_constant_schedule(optimizer);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 2);
}

TEST(Scheduler, SchedulesGroupsAddedAfterItsConstruction) {
    SGD optimizer({parameter()}, {.lr = 2});
    ExponentialLR scheduler(optimizer, 0.5);
    optimizer.add_param_group({{parameter()}, {.lr = 8}});
    scheduler.step();
    EXPECT_EQ(scheduler.get_last_lr(), (std::vector<double>{1, 4}));
}

struct AdvanceTwice : SchedulerHooks {
    void step(Scheduler& scheduler) override {
        scheduler.advance();
        scheduler.advance();
    }
};

TEST(Scheduler, AdvancesAsOftenAsHooksRequest) {
    SGD optimizer({parameter()}, {.lr = 1});
    ExponentialLR scheduler(optimizer, 0.5);
    scheduler.set_hooks(std::make_shared<AdvanceTwice>());
    scheduler.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.25);
    scheduler.set_hooks(nullptr);
    scheduler.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.125);
}

std::shared_ptr<Scheduler> halving(Optimizer& optimizer) {
    return std::make_shared<ExponentialLR>(optimizer, 0.5);
}

TEST(ExponentialLR, ContinuesFromRateSetByUser) {
    SGD optimizer({parameter()}, {.lr = 1});
    ExponentialLR scheduler(optimizer, 0.5);
    optimizer.param_groups()[0].lr = 3;
    scheduler.step();
    EXPECT_EQ(scheduler.get_last_lr()[0], 1.5);
}

TEST(ConstantLR, ReturnsToInitialRateAfterFactorZero) {
    SGD optimizer({parameter()}, {.lr = 2});
    ConstantLR scheduler(optimizer, 0, 2);
    scheduler.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0);
    scheduler.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 2);
}

TEST(OneCycleLR, StartsAtMaximumIfRiseHasOneStep) {
    SGD optimizer({parameter()});
    OneCycleLR scheduler(optimizer, 1, 10, {.pct_start = 0.1});
    EXPECT_EQ(optimizer.param_groups()[0].lr, 1);
}

TEST(MetricScheduler, RequiresMetricToStep) {
    SGD optimizer({parameter()}, {.lr = 1});
    ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 0});
    EXPECT_FALSE(scheduler.can_look_ahead());
    scheduler.step(full({}, 2.0));
    scheduler.step(2.0);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.5);
    Scheduler& as_any = scheduler;
    expect_error<UsageError>({"ReduceLROnPlateau: step() needs a metric"}, [&] { as_any.step(); });
    EXPECT_EQ(scheduler.last_epoch(), 2);
}

TEST(MetricScheduler, StepsTwiceWithSameMetricIfHooksRequestIt) {
    SGD optimizer({parameter()}, {.lr = 1});
    ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 0});
    scheduler.set_hooks(std::make_shared<AdvanceTwice>());
    scheduler.step(1.0);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.5);
    EXPECT_EQ(scheduler.last_epoch(), 2);
}

TEST(ReduceLROnPlateau, RequiresOneMinLrPerGroupOrOneForAll) {
    SGD optimizer({parameter()}, {.lr = 1});
    ReduceLROnPlateau one(optimizer, {.factor = 0.5, .patience = 0, .min_lr = 0.75});
    ReduceLROnPlateau each(optimizer, {.factor = 0.5, .patience = 0, .min_lr = {0.75}});
    optimizer.add_param_group({{parameter()}, {.lr = 8}});
    for (int i = 0; i < 2; ++i) one.step(1.0);
    EXPECT_EQ(one.get_last_lr(), (std::vector<double>{0.75, 4}));
    each.step(1.0);
    expect_error<ValueError>({"ReduceLROnPlateau: needs one min_lr per group: 1 values, 2 groups"},
                             [&] { each.step(1.0); });
}

TEST(ComposedScheduler, CanBeNested) {
    SGD optimizer({parameter()}, {.lr = 8});
    auto both = std::make_shared<ChainedScheduler>(
        ComposedScheduler::Parts{halving(optimizer), halving(optimizer)});
    auto inner = std::make_shared<SequentialLR>(
        optimizer, ComposedScheduler::Parts{halving(optimizer), halving(optimizer)},
        std::vector<std::int64_t>{2});
    SequentialLR scheduler(optimizer, {both, inner}, {2});
    std::vector<double> seen = scheduler.get_last_lr();
    for (int t = 1; t < 6; ++t) {
        scheduler.step();
        seen.push_back(scheduler.get_last_lr()[0]);
    }
    EXPECT_EQ(seen, (std::vector<double>{8, 2, 8, 4, 8, 4}));
    EXPECT_EQ(scheduler.last_epoch(), 5);
    EXPECT_TRUE(scheduler.can_look_ahead());
}

TEST(ChainedScheduler, HasTotalStepsOfShortestPart) {
    SGD optimizer({parameter()});
    const auto cycle = [&](std::int64_t steps) {
        return std::make_shared<OneCycleLR>(optimizer, 1, steps);
    };
    EXPECT_EQ(ChainedScheduler({cycle(9), halving(optimizer), cycle(5)}).total_steps(), 5);
    EXPECT_EQ(ChainedScheduler({halving(optimizer)}).total_steps(), std::nullopt);
}

TEST(ComposedScheduler, RejectsInvalidParts) {
    SGD optimizer({parameter()}), other({parameter()});
    expect_error<ValueError>({"SequentialLR: needs at least one schedule"},
                             [&] { SequentialLR(optimizer, {}, {}); });
    expect_error<ValueError>({"ChainedScheduler: needs at least one schedule"},
                             [&] { ChainedScheduler({}); });
    expect_error<ValueError>({"ChainedScheduler: schedules must not be null: schedule 0"}, [&] {
        ChainedScheduler({nullptr, halving(optimizer)});
    });
    expect_error<ValueError>({"SequentialLR: all schedules must have the same optimizer: schedule "
                              "1 has another optimizer"},
                             [&] {
                                 SequentialLR(optimizer, {halving(optimizer), halving(other)}, {3});
                             });
    expect_error<ValueError>({"ChainedScheduler: schedule 0 needs a metric"}, [&] {
        ChainedScheduler({std::make_shared<ReduceLROnPlateau>(optimizer)});
    });
    expect_error<ValueError>({"SequentialLR: needs one more schedule than milestones: 2"}, [&] {
        SequentialLR(optimizer, {halving(optimizer), halving(optimizer)}, {3, 4});
    });
    expect_error<ValueError>({"SequentialLR: milestones must not decrease"}, [&] {
        SequentialLR(optimizer, {halving(optimizer), halving(optimizer), halving(optimizer)},
                     {4, 3});
    });
}

// Covers 25.get_model, 5.param.
TEST(GetScheduler, ReportsMissingAndUnknownArguments) {
    SGD optimizer({parameter()}, {.lr = 1});
    expect_error<ValueError>(
        {"get_scheduler: unknown schedule 'cosinus'; expected one of linear, cosine",
         "warmup_stable_decay", "greedy"},
        [&] { get_scheduler("cosinus", optimizer); });
    expect_error<ValueError>({"get_scheduler: linear requires num_warmup_steps"},
                             [&] { get_scheduler("linear", optimizer, {}, 100); });
    expect_error<ValueError>({"get_scheduler: linear requires num_training_steps"},
                             [&] { get_scheduler("linear", optimizer, 10); });
    expect_error<ValueError>({"get_scheduler: inverse_sqrt requires num_warmup_steps"},
                             [&] { get_scheduler("inverse_sqrt", optimizer); });
    expect_error<ValueError>(
        {"get_scheduler: cosine: unknown option 'power'; expected one of num_cycles"}, [&] {
            get_scheduler("cosine", optimizer, 1, 10, {{"power", 2}});
        });
    expect_error<ValueError>(
        {"get_scheduler: linear: unknown option 'power'; the schedule has no options"}, [&] {
            get_scheduler("linear", optimizer, 1, 10, {{"power", 2}});
        });
    expect_error<ValueError>({"get_scheduler: warmup_stable_decay requires num_decay_steps"},
                             [&] { get_scheduler("warmup_stable_decay", optimizer, 1, 10); });
    expect_error<ValueError>({"get_wsd_schedule: training_steps or stable_steps"}, [&] {
        get_scheduler("warmup_stable_decay", optimizer, 1, {}, {{"num_decay_steps", 3}});
    });
    expect_error<ValueError>(
        {"get_scheduler: reduce_lr_on_plateau: mode must be one of min, max"}, [&] {
            get_scheduler("reduce_lr_on_plateau", optimizer, {}, {}, {{"mode", "least"}});
        });
    expect_error<ValueError>({"get_cosine_with_min_lr_schedule_with_warmup: one of min_lr and"},
                             [&] { get_scheduler("cosine_with_min_lr", optimizer, 1, 10); });
    expect_error<ValueError>(
        {"get_cosine_with_min_lr_schedule_with_warmup: min_lr and min_lr_rate cannot be combined"},
        [&] {
            get_scheduler("cosine_with_min_lr", optimizer, 1, 10,
                          {{"min_lr", 0.1}, {"min_lr_rate", 0.1}});
        });
    expect_error<ValueError>({"get_polynomial_decay_schedule_with_warmup: lr_end must be below"},
                             [&] {
                                 get_scheduler("polynomial", optimizer, 1, 10, {{"lr_end", 1}});
                             });
    EXPECT_EQ(optimizer.param_groups()[0].lr, 1);
}

TEST(Scheduler, RejectsInvalidState) {
    SGD optimizer({parameter()}, {.lr = 1});
    StepLR steps(optimizer, 3);
    Tree state = steps.state_dict();
    state.set("gamma", 0.7);
    state.set("step_size", 0);
    expect_error<ValueError>(
        {"axle::optim::StepLR: load_state_dict: step_size: must be at least 1: 0"},
        [&] { steps.load_state_dict(state); });
    EXPECT_EQ(steps.state_dict()["gamma"].number(), 0.1);
    state = steps.state_dict();
    state.set("base_lrs", Tree::list({Tree(1.0), Tree(1.0)}));
    expect_error<ValueError>(
        {"axle::optim::StepLR: load_state_dict: base_lrs has 2 values", "1 group"},
        [&] { steps.load_state_dict(state); });
    CyclicLR cycles(optimizer, 0.1, 1);
    state = cycles.state_dict();
    state.set("mode", "square");
    expect_error<ValueError>(
        {"axle::optim::CyclicLR: load_state_dict: mode: must be one of ", ": 'square'"},
        [&] { cycles.load_state_dict(state); });
    state = cycles.state_dict();
    state.set("max_lrs", Tree::list());
    expect_error<ValueError>(
        {"axle::optim::CyclicLR: load_state_dict: max_lrs: must have 1 number: it has 0"},
        [&] { cycles.load_state_dict(state); });
    SequentialLR parts(optimizer, {halving(optimizer), halving(optimizer)}, {3});
    state = parts.state_dict();
    state.set("_schedulers", Tree::list());
    expect_error<ValueError>(
        {"axle::optim::SequentialLR: load_state_dict: the number of schedules differs: ",
         "0 in the state, 2 in the scheduler"},
        [&] { parts.load_state_dict(state); });
}

TEST(Scheduler, RejectsInvalidArguments) {
    SGD optimizer({parameter()});
    expect_error<ValueError>({"StepLR: step_size must be positive: 0"},
                             [&] { StepLR(optimizer, 0); });
    expect_error<ValueError>({"OneCycleLR: needs one max_lr per group: 2 values, 1 groups"}, [&] {
        OneCycleLR(optimizer, {1.0, 2.0}, 5);
    });
    expect_error<ValueError>({"ConstantLR: factor must be in [0, 1]: 2"},
                             [&] { ConstantLR(optimizer, 2); });
    expect_error<ValueError>({"LinearLR: start_factor must be greater than 0"},
                             [&] { LinearLR(optimizer, 0); });
    expect_error<ValueError>({"LinearLR: end_factor must be in [0, 1]: 1.5"},
                             [&] { LinearLR(optimizer, 0.5, 1.5); });
    expect_error<ValueError>(
        {"MultiplicativeLR: needs one function per group: 0 functions, 1 groups"},
        [&] { MultiplicativeLR(optimizer, std::vector<LrFactor>()); });
    expect_error<ValueError>({"ReduceLROnPlateau: factor must be below 1: 1"},
                             [&] { ReduceLROnPlateau(optimizer, {.factor = 1}); });
    expect_error<ValueError>({"CyclicLR: needs one base_lr per group: 2 values, 1 groups"}, [&] {
        CyclicLR(optimizer, {0.1, 0.2}, 1);
    });
    expect_error<ValueError>({"SWALR: anneal_epochs must not be negative: -1"},
                             [&] { SWALR(optimizer, 0.1, -1); });
    expect_error<ValueError>(
        {"get_linear_schedule_with_warmup: warmup_steps must not be negative: -1"},
        [&] { get_linear_schedule_with_warmup(optimizer, -1, 5); });
}

TEST(GetWsdSchedule, RejectsNegativeNumbersOfSteps) {
    SGD optimizer({parameter()}, {.lr = 1});
    expect_error<ValueError>({"get_wsd_schedule: warmup_steps must not be negative: -1"},
                             [&] { get_wsd_schedule(optimizer, -1, 2, {.stable_steps = 3}); });
    expect_error<ValueError>({"get_wsd_schedule: decay_steps must not be negative: -2"},
                             [&] { get_wsd_schedule(optimizer, 1, -2, {.stable_steps = 3}); });
    expect_error<ValueError>({"get_wsd_schedule: stable_steps must not be negative: -3"},
                             [&] { get_wsd_schedule(optimizer, 1, 2, {.stable_steps = -3}); });
    expect_error<ValueError>({"get_wsd_schedule: training_steps must not be negative: -4"},
                             [&] { get_wsd_schedule(optimizer, 1, 2, {.training_steps = -4}); });
}

TEST(GetInverseSqrtSchedule, RejectsNegativeWarmupSteps) {
    SGD optimizer({parameter()}, {.lr = 1});
    expect_error<ValueError>({"get_inverse_sqrt_schedule: warmup_steps must not be negative: -1"},
                             [&] { get_inverse_sqrt_schedule(optimizer, -1); });
}

}  // namespace
}  // namespace axle
