// Tests prepared schedules that end, need a metric, consist of several schedules, or are created by
// name.
#include <cstdint>
#include <memory>
#include <vector>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

struct Prepared {
    explicit Prepared(accel::AcceleratorOptions options = {})
        : w(ones({1}, {.requires_grad = true})),
          sgd({w}, {.lr = 1}),
          accelerator(std::move(options)) {}

    template <class Step>
    void iterate(Step&& step) {
        auto scope = accelerator.accumulate();
        accelerator.backward((w * 0.0).sum());
        sgd.step();
        step();
        sgd.zero_grad();
    }
    double lr() { return sgd.param_groups()[0].lr; }

    Tensor w;
    optim::SGD sgd;
    Accelerator accelerator;
};

// Covers 5.AcceleratedScheduler, 5.step.
TEST(SchedulerHooks, IgnoreMetricsOfMicroBatchesWithoutSync) {
    Prepared p({.gradient_accumulation_steps = 2});
    optim::ReduceLROnPlateau plateau(p.sgd, {.factor = 0.5, .patience = 0});
    p.accelerator.prepare(p.sgd, plateau);
    for (const double metric : {1.0, 5.0, 9.0, 4.0}) p.iterate([&] { plateau.step(metric); });
    EXPECT_EQ(plateau.last_epoch(), 2);
    EXPECT_EQ(p.lr(), 1);
    for (int i = 0; i < 2; ++i) p.iterate([&] { plateau.step(4.0); });
    EXPECT_EQ(p.lr(), 0.5);
}

TEST(SchedulerHooks, AdvanceReduceLROnPlateauOnEveryStepIfNotSteppedWithOptimizer) {
    Prepared p({.gradient_accumulation_steps = 2, .step_scheduler_with_optimizer = false});
    optim::ReduceLROnPlateau plateau(p.sgd, {.factor = 0.5, .patience = 0});
    p.accelerator.prepare(p.sgd, plateau);
    for (int i = 0; i < 3; ++i) p.iterate([&] { plateau.step(1.0); });
    EXPECT_EQ(plateau.last_epoch(), 3);
    EXPECT_EQ(p.lr(), 0.25);
}

TEST(SchedulerHooks, AdvanceReduceLROnPlateauPerProcessOrPerUpdate) {
    tests::on_ranks(2, [](const std::shared_ptr<dist::ProcessGroup>& group) {
        for (const auto steps :
             {accel::SchedulerSteps::per_process, accel::SchedulerSteps::per_update}) {
            Prepared p({.scheduler_steps = steps, .process_group = group});
            optim::ReduceLROnPlateau plateau(p.sgd, {.factor = 0.5, .patience = 2});
            p.accelerator.prepare(p.sgd, plateau);
            for (int i = 0; i < 2; ++i) p.iterate([&] { plateau.step(1.0); });
            const bool per_process = steps == accel::SchedulerSteps::per_process;
            EXPECT_EQ(plateau.last_epoch(), per_process ? 4 : 2);
            EXPECT_EQ(p.lr(), per_process ? 0.5 : 1);
        }
    });
}

TEST(SchedulerHooks, StopAChainedSchedulerAtItsEnd) {
    Prepared p;
    optim::ChainedScheduler chain({std::make_shared<optim::OneCycleLR>(p.sgd, 1.0, 4),
                                   std::make_shared<optim::ExponentialLR>(p.sgd, 0.5)});
    p.accelerator.prepare(p.sgd, chain);
    for (int i = 0; i < 4; ++i) p.iterate([&] { chain.step(); });
    const double end = p.lr();
    for (int i = 0; i < 3; ++i) p.iterate([&] { chain.step(); });
    EXPECT_EQ(p.lr(), end);
    EXPECT_EQ(chain.last_epoch(), 4);
}

TEST(SchedulerHooks, ApplyToAllPartsOfASequentialScheduler) {
    Prepared p({.gradient_accumulation_steps = 3});
    optim::SequentialLR sequence(p.sgd,
                                 {optim::get_scheduler("constant_with_warmup", p.sgd, 2),
                                  std::make_shared<optim::ExponentialLR>(p.sgd, 0.5)},
                                 {2});
    p.accelerator.prepare(p.sgd, sequence);
    std::vector<double> seen;
    for (int i = 0; i < 9; ++i) {
        p.iterate([&] { sequence.step(); });
        seen.push_back(p.lr());
    }
    EXPECT_EQ(seen, (std::vector<double>{0, 0, 0.5, 0.5, 0.5, 1, 1, 1, 0.5}));
}

TEST(SchedulerHooks, ApplyToAScheduleCreatedByName) {
    Prepared p({.gradient_accumulation_steps = 2});
    const auto linear = optim::get_scheduler("linear", p.sgd, 0, 4);
    p.accelerator.prepare(p.sgd, *linear);
    for (const double lr : {1.0, 0.75}) {
        p.iterate([&] { linear->step(); });
        EXPECT_EQ(p.lr(), lr);
    }
}

}  // namespace
}  // namespace axle
