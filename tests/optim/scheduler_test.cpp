#include "optim/scheduler.h"

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/adam.h"
#include "optim/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using namespace optim;  // NOLINT: every name of the table below
using tests::expect_error;

Tensor parameter() { return zeros({2}, {.requires_grad = true}); }

using Make = std::function<std::unique_ptr<Scheduler>(Optimizer&)>;

template <class S, class... Args>
Make make(Args... args) {
    return [=](Optimizer& optimizer) { return std::make_unique<S>(optimizer, args...); };
}
// A factory's result, made in its place on the heap.
template <class F>
Make from(F f) {
    return [=](Optimizer& optimizer) {
        return std::unique_ptr<Scheduler>(new LambdaLR(f(optimizer)));
    };
}

struct Recorded {
    const char* name;
    Make make;
};

std::vector<Recorded> recorded() {
    return {
        {"lambda", make<LambdaLR>(LambdaLR::Factor([](auto t) { return 1 / (1 + 0.1 * t); }))},
        {"lambda_per_group",
         make<LambdaLR>(std::vector<LambdaLR::Factor>{[](auto t) { return std::pow(0.9, t); },
                                                      [](auto t) { return 1 - t / 100.0; }})},
        {"step", make<StepLR>(7, 0.5)},
        {"multistep", make<MultiStepLR>(std::vector<std::int64_t>{5, 20, 21}, 0.3)},
        {"exponential", make<ExponentialLR>(0.95)},
        {"constant_factor", make<ConstantLR>()},
        {"linear_factor", make<LinearLR>(0.25, 0.75, 10)},
        {"polynomial", make<PolynomialLR>(40, 2.0)},
        {"cosine_annealing", make<CosineAnnealingLR>(45, 0.05)},
        {"warm_restarts", make<CosineAnnealingWarmRestarts>(8, 2, 0.05)},
        {"constant", from([](Optimizer& o) { return get_constant_schedule(o); })},
        {"constant_with_warmup",
         from([](Optimizer& o) { return get_constant_schedule_with_warmup(o, 7); })},
        {"linear_with_warmup",
         from([](Optimizer& o) { return get_linear_schedule_with_warmup(o, 7, 50); })},
        {"linear_without_warmup",
         from([](Optimizer& o) { return get_linear_schedule_with_warmup(o, 0, 50); })},
        {"cosine_with_warmup",
         from([](Optimizer& o) { return get_cosine_schedule_with_warmup(o, 7, 60); })},
        {"cosine_two_cycles",
         from([](Optimizer& o) { return get_cosine_schedule_with_warmup(o, 7, 60, 1.5); })},
        {"cosine_with_min_lr",
         from([](Optimizer& o) { return get_cosine_schedule_with_warmup(o, 7, 60, 0.5, 0.1); })},
        {"onecycle_cos", make<OneCycleLR>(1.0, 61)},
        {"onecycle_linear", make<OneCycleLR>(std::vector<double>{1, 3}, 61,
                                             OneCycleOptions{.pct_start = 0.2,
                                                             .anneal = Anneal::linear,
                                                             .cycle_momentum = false,
                                                             .div_factor = 10,
                                                             .final_div_factor = 100})},
        {"onecycle_three_phase", make<OneCycleLR>(1.0, 61, OneCycleOptions{.three_phase = true})},
    };
}

TEST(Scheduler, FollowsPyTorchOverSixtySteps) {
    const auto golden = tests::golden("optim.json")["schedules"];
    ASSERT_EQ(golden.size(), recorded().size());
    for (const auto& [name, make] : recorded()) {
        AdamW optimizer({{{parameter()}, {.lr = 2}}, {{parameter()}, {.lr = 0.5}}});
        const auto scheduler = make(optimizer);
        const std::vector<std::vector<double>> lr = golden[name]["lr"];
        for (int t = 0; t <= 60; ++t) {
            if (t > 0) scheduler->step();
            for (std::size_t g = 0; g < 2; ++g) {
                ASSERT_NEAR(optimizer.param_groups()[g].lr, lr[t][g], 1e-12) << name << ", " << t;
                ASSERT_EQ(scheduler->get_last_lr()[g], optimizer.param_groups()[g].lr);
            }
            if (!golden[name].contains("beta1")) continue;
            const double beta1 = golden[name]["beta1"][t];
            ASSERT_NEAR(optimizer.param_groups()[1].betas[0], beta1, 1e-12) << name << ", " << t;
        }
        EXPECT_EQ(scheduler->last_epoch(), 60);
        EXPECT_EQ(scheduler->step_count(), 61);
    }
}

TEST(Scheduler, CosineGoesFromLrToMinLr) {
    SGD optimizer({parameter()}, {.lr = 6e-4});
    auto scheduler = get_cosine_schedule_with_warmup(optimizer, 2, 10, 0.5, 0.1);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0);
    for (int i = 0; i < 2; ++i) scheduler.step();
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].lr, 6e-4);
    for (int i = 0; i < 8; ++i) scheduler.step();
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].lr, 6e-5);
}

TEST(Scheduler, OneCycleCyclesTheMomentumOfSgd) {
    SGD optimizer({parameter()}, {.momentum = 0.5});
    OneCycleLR scheduler(optimizer, 1, 10);
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].momentum, 0.95);
    scheduler.step();
    scheduler.step();
    EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].momentum, 0.85);
}

TEST(Scheduler, OneCycleRefusesToGoOnAfterItsEnd) {
    SGD optimizer({parameter()});
    OneCycleLR scheduler(optimizer, 1, 3);
    EXPECT_EQ(scheduler.total_steps(), 3);
    for (int i = 0; i < 3; ++i) scheduler.step();
    const double lr = optimizer.param_groups()[0].lr;
    expect_error<ValueError>({"OneCycleLR: step 4 is beyond the 3 steps of the schedule"},
                             [&] { scheduler.step(); });
    EXPECT_EQ(optimizer.param_groups()[0].lr, lr);
    EXPECT_EQ(scheduler.last_epoch(), 3);
}

TEST(Scheduler, ASecondSchedulerStartsFromTheSameRate) {
    SGD optimizer({parameter()}, {.lr = 2});
    { auto warmup = get_constant_schedule_with_warmup(optimizer, 10); }
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0);
    ExponentialLR scheduler(optimizer, 0.5);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 2);
}

TEST(Scheduler, AGroupThatIsAddedLaterIsScheduledToo) {
    SGD optimizer({parameter()}, {.lr = 2});
    ExponentialLR scheduler(optimizer, 0.5);
    optimizer.add_param_group({{parameter()}, {.lr = 8}});
    scheduler.step();
    EXPECT_EQ(scheduler.get_last_lr(), (std::vector<double>{1, 4}));
}

TEST(Scheduler, ResumesFromItsStateAndTheOptimizers) {
    for (const auto& [name, make] : recorded()) {
        AdamW optimizer({{{parameter()}, {.lr = 2}}, {{parameter()}, {.lr = 0.5}}});
        AdamW other({{{parameter()}, {}}, {{parameter()}, {}}});
        const auto scheduler = make(optimizer), resumed = make(other);
        for (int t = 0; t < 9; ++t) scheduler->step();
        other.load_state_dict(optimizer.state_dict());
        resumed->load_state_dict(scheduler->state_dict());
        EXPECT_EQ(resumed->get_last_lr(), scheduler->get_last_lr()) << name;
        for (int t = 0; t < 9; ++t) scheduler->step(), resumed->step();
        EXPECT_EQ(resumed->get_last_lr(), scheduler->get_last_lr()) << name;
        EXPECT_EQ(other.param_groups()[0].lr, optimizer.param_groups()[0].lr) << name;
        EXPECT_EQ(resumed->step_count(), scheduler->step_count());
    }
}

struct Twice : SchedulerGate {
    void step(Scheduler& scheduler) override {
        scheduler.advance();
        scheduler.advance();
    }
};

TEST(Scheduler, AGateDecidesHowOftenItAdvances) {
    SGD optimizer({parameter()}, {.lr = 1});
    ExponentialLR scheduler(optimizer, 0.5);
    scheduler.set_gate(std::make_shared<Twice>());
    scheduler.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.25);
    scheduler.set_gate(nullptr);
    scheduler.step();
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.125);
}

TEST(Scheduler, RefusesWrongNumbers) {
    SGD optimizer({parameter()});
    expect_error<ValueError>({"StepLR: step_size must be positive: 0"},
                             [&] { StepLR(optimizer, 0); });
    expect_error<ValueError>({"OneCycleLR: one max_lr per group is needed: 2 for 1"}, [&] {
        OneCycleLR(optimizer, {1.0, 2.0}, 5);
    });
    expect_error<ValueError>({"get_linear_schedule_with_warmup: steps must not be negative"},
                             [&] { get_linear_schedule_with_warmup(optimizer, -1, 5); });
}

}  // namespace
}  // namespace axle
