// Tests optimizers that are moved, returned by functions and stored in vectors.
#include <memory>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "optim/adam.h"
#include "optim/lomo.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"

namespace axle {
namespace {

using optim::AdamW;
using optim::SGD;
using tests::expect_error;
using tests::parameters;
using tests::Params;
using tests::set_gradients;
using tests::values;

std::pair<AdamW, SGD> make_optimizers(const Params& first, const Params& second) {
    AdamW adamw(first, {.lr = 0.5});
    SGD sgd(second, {.lr = 0.25, .momentum = 0.5});
    return {std::move(adamw), std::move(sgd)};
}

TEST(Optimizer, CanBeReturnedByFunctionsAndStoredInVectors) {
    const Params first = parameters(), second = parameters(), expected = parameters();
    auto [adamw, sgd] = make_optimizers(first, second);
    SGD reference(expected, {.lr = 0.25, .momentum = 0.5});
    std::vector<SGD> optimizers;
    optimizers.push_back(std::move(sgd));
    for (int i = 0; i < 3; ++i) {
        for (const Params& params : {first, second, expected}) set_gradients(params, i);
        adamw.step();
        optimizers[0].step();
        reference.step();
        optimizers.emplace_back(parameters());  // moves the other optimizers
    }
    EXPECT_NE(values(first), values(parameters()));
    EXPECT_EQ(values(second), values(expected));
    EXPECT_EQ(optimizers[0].param_groups()[0].momentum, 0.5);
    optim::Lomo lomo(parameters());
    EXPECT_EQ(optim::Lomo(std::move(lomo)).parameters().size(), first.size());
}

TEST(Optimizer, KeepsItsStateWhenMoved) {
    const Params params = parameters();
    SGD from(params, {.lr = 1, .momentum = 0.5});
    from.set_scalars(tensor({1, 1, 1}, {.dtype = f64}));
    from.step();
    EXPECT_TRUE(from.step_was_skipped());
    from.set_scalars({});
    set_gradients(params, 1);
    from.step();
    const Tensor momentum = from.state(params[0])->buffers[0];
    const SGD to(std::move(from));
    EXPECT_TRUE(to.state(params[0])->buffers[0].is_same(momentum));
    EXPECT_TRUE(to.skipped().defined());
}

TEST(Optimizer, HasNoParametersAndRejectsStepsAfterItWasMovedFrom) {
    const Params params = parameters();
    SGD from(params, {.lr = 1});
    const SGD to(std::move(from));
    set_gradients(params, 1);
    const auto before = values(params);
    const char* const moved = ": this optimizer was moved to another object";
    expect_error<UsageError>({"SGD: step", moved},
                             [&] { from.step(); });  // NOLINT(bugprone-use-after-move)
    expect_error<UsageError>({"SGD: step", moved}, [&] { from.step([] { return Tensor(); }); });
    expect_error<UsageError>({"SGD: zero_grad", moved}, [&] { from.zero_grad(); });
    expect_error<UsageError>({"axle::optim::StepLR: the schedule or its optimizer was moved"},
                             [&] { const optim::StepLR schedule(from, 1); });
    EXPECT_EQ(values(params), before);
    EXPECT_TRUE(from.parameters().empty());
    EXPECT_TRUE(params[0].grad().defined());
    EXPECT_EQ(from.state(params[0]), nullptr);
    from.state_dict();
}

TEST(Scheduler, FollowsAnOptimizerThatIsMoved) {
    auto from = std::make_unique<SGD>(parameters(), optim::SGDOptions{.lr = 1});
    optim::StepLR schedule(*from, 1, 0.5);
    SGD to(std::move(*from));
    from.reset();
    EXPECT_EQ(&schedule.optimizer(), &to);
    schedule.step();
    EXPECT_EQ(to.param_groups()[0].lr, 0.5);
}

TEST(Scheduler, RejectsStepsAfterItsOptimizerWasDestroyed) {
    auto optimizer = std::make_unique<SGD>(parameters(), optim::SGDOptions{.lr = 1});
    auto from = std::make_unique<SGD>(parameters(), optim::SGDOptions{.lr = 1});
    optim::StepLR halved(*optimizer, 1, 0.5), follows(*from, 1, 0.5);
    optim::ReduceLROnPlateau plateau(*optimizer);
    optimizer = std::make_unique<SGD>(std::move(*from));
    expect_error<UsageError>({"axle::optim::StepLR: the optimizer was destroyed"},
                             [&] { halved.step(); });
    expect_error<UsageError>({"axle::optim::StepLR: the optimizer was destroyed"},
                             [&] { halved.optimizer(); });
    expect_error<UsageError>({"axle::optim::ReduceLROnPlateau: the optimizer was destroyed"},
                             [&] { plateau.step(1); });
    EXPECT_EQ(halved.last_epoch(), 0);
    EXPECT_EQ(halved.get_last_lr(), std::vector<double>{1});
    from.reset();
    follows.step();
    EXPECT_TRUE(follows.is_for(*optimizer));
    optimizer.reset();
    expect_error<UsageError>({"axle::optim::StepLR: the optimizer was destroyed"},
                             [&] { follows.step(); });
}

struct PlainOptimizerHooks : optim::OptimizerHooks {
    optim::StepPlan before_step(optim::Optimizer&) override { return {}; }
    bool before_zero_grad(optim::Optimizer&) override { return true; }
};

TEST(Optimizer, CannotBeMovedWhilePrepared) {
    const Params params = parameters();
    SGD optimizer(params, {.lr = 1});
    optimizer.set_hooks(std::make_shared<PlainOptimizerHooks>());
    expect_error<UsageError>({"SGD: a prepared optimizer cannot be moved", "before prepare()"},
                             [&] { const SGD moved(std::move(optimizer)); });
    optimizer.set_hooks(nullptr);  // NOLINT: the optimizer was not moved
    const SGD moved(std::move(optimizer));
    EXPECT_EQ(moved.state(params[0]), nullptr);
}

}  // namespace
}  // namespace axle
