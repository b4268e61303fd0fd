// Tests schedules that are moved, returned by functions and stored in vectors.
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"

namespace axle {
namespace {

using optim::SGD;
using tests::expect_error;
using tests::parameters;

// Moving the base class would lose the members of the derived class.
static_assert(!std::is_move_constructible_v<optim::Scheduler>);
static_assert(std::is_move_constructible_v<optim::LambdaLR>);
static_assert(!std::is_copy_constructible_v<optim::LambdaLR>);

double rate(SGD& sgd) { return sgd.param_groups()[0].lr; }

std::pair<optim::StepLR, optim::LambdaLR> make_schedules(SGD& first, SGD& second) {
    optim::StepLR halved(first, 1, 0.5);
    auto linear = optim::get_linear_schedule_with_warmup(second, 0, 4);
    return {std::move(halved), std::move(linear)};
}

TEST(Scheduler, CanBeReturnedByFunctionsAndStoredInVectors) {
    SGD first(parameters(), {.lr = 1}), second(parameters(), {.lr = 1});
    auto [halved, linear] = make_schedules(first, second);
    std::vector<optim::LambdaLR> schedules;
    schedules.push_back(std::move(linear));
    SGD third(parameters(), {.lr = 1});
    for (int i = 0; i < 3; ++i) {
        halved.step();
        schedules[0].step();
        schedules.emplace_back(third, [](auto) { return 1.0; });  // moves the other schedules
    }
    EXPECT_EQ(rate(first), 0.125);
    EXPECT_EQ(rate(second), 0.25);
    EXPECT_EQ(schedules[0].last_epoch(), 3);
    EXPECT_EQ(schedules[0].get_last_lr(), std::vector<double>{0.25});
}

TEST(Scheduler, KeepsItsStateWhenMoved) {
    SGD sgd(parameters(), {.lr = 1});
    optim::ReduceLROnPlateau from(sgd, {.factor = 0.5, .patience = 1});
    from.step(1.0);
    from.step(1.0);
    const Tree before = from.state_dict();
    optim::ReduceLROnPlateau to(std::move(from));
    EXPECT_EQ(to_json(to.state_dict()), to_json(before));
    EXPECT_EQ(&to.optimizer(), &sgd);
    EXPECT_EQ(rate(sgd), 1);
    to.step(1.0);  // the second step without improvement
    EXPECT_EQ(rate(sgd), 0.5);
}

TEST(Scheduler, FollowsAnOptimizerThatIsMovedAfterTheScheduler) {
    auto from = std::make_unique<SGD>(parameters(), optim::SGDOptions{.lr = 1});
    optim::StepLR first(*from, 1, 0.5);
    optim::StepLR schedule(std::move(first));
    SGD to(std::move(*from));
    from.reset();
    schedule.step();
    EXPECT_EQ(&schedule.optimizer(), &to);
    EXPECT_EQ(rate(to), 0.5);
}

TEST(SequentialLR, KeepsItsPartsWhenMoved) {
    SGD sgd(parameters(), {.lr = 1}), expected(parameters(), {.lr = 1});
    const auto make = [](SGD& optimizer) {
        return optim::SequentialLR(optimizer,
                                   {std::make_shared<optim::LinearLR>(optimizer, 0.5, 1, 2),
                                    std::make_shared<optim::ExponentialLR>(optimizer, 0.5)},
                                   {2});
    };
    optim::SequentialLR from = make(sgd), reference = make(expected);
    from.step();
    reference.step();
    optim::SequentialLR to(std::move(from));
    for (int i = 0; i < 4; ++i) {
        to.step();
        reference.step();
        EXPECT_EQ(rate(sgd), rate(expected));
    }
}

TEST(Scheduler, CannotBeMovedWhilePartOfAComposedSchedule) {
    SGD sgd(parameters(), {.lr = 1});
    const auto part = std::make_shared<optim::ExponentialLR>(sgd, 0.5);
    optim::ChainedScheduler chain({part});
    expect_error<UsageError>(
        {"axle::optim::ExponentialLR: a part of a composed schedule cannot be moved",
         "move the composed schedule"},
        [&] { const optim::ExponentialLR moved(std::move(*part)); });
    chain.step();
    EXPECT_EQ(rate(sgd), 0.5);
}

struct PlainSchedulerHooks : optim::SchedulerHooks {
    void step(optim::Scheduler& scheduler) override { scheduler.advance(); }
};

TEST(Scheduler, CannotBeMovedWhilePrepared) {
    SGD sgd(parameters(), {.lr = 1});
    optim::StepLR schedule(sgd, 1, 0.5);
    schedule.set_hooks(std::make_shared<PlainSchedulerHooks>());
    expect_error<UsageError>(
        {"axle::optim::StepLR: a prepared schedule cannot be moved", "before prepare()"},
        [&] { const optim::StepLR moved(std::move(schedule)); });
    schedule.set_hooks(nullptr);  // NOLINT: the schedule was not moved
    optim::StepLR moved(std::move(schedule));
    moved.step();
    EXPECT_EQ(rate(sgd), 0.5);
}

}  // namespace
}  // namespace axle
