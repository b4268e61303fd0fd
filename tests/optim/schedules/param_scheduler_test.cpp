// Tests the schedule of Megatron-LM.
#include "optim/schedules/param_scheduler.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "gmock/gmock.h"
#include "optim/adam.h"
#include "tests/close.h"

namespace axle::optim {
namespace {

using tests::expect_error;

AdamW optimizer_of(double lr, double weight_decay = 0) {
    return AdamW({zeros({2}).set_requires_grad()}, {.lr = lr, .weight_decay = weight_decay});
}

// Advances the schedule from epoch 0 to `epoch`.
void advance_to(Scheduler& schedule, std::int64_t epoch) {
    while (schedule.last_epoch() < epoch) schedule.step();
}

// The rates of a run with the initial rate 1, min_lr 0.1, a warmup of 4 steps and a decay that ends
// at step 12. They are computed by hand from the formulas of OptimizerParamScheduler in Megatron-LM
// (megatron/core/optimizer_param_scheduler.py). With root = sqrt(0.5), cosine at p = 1/4 has the
// factor (1 + root) / 2.
constexpr double kMin = 0.1, kRoot = 0.70710678118654752;
constexpr double kQuarter = kMin + 0.9 * (1 + kRoot) / 2;

struct Curve {
    const char* decay;
    const char* wsd;
    std::vector<std::pair<std::int64_t, double>> rates;
};

// Covers 16.is_train_batch_min.
TEST(OptimizerParamScheduler, ComputesTheRatesOfMegatronLM) {
    const std::vector<Curve> curves = {
        {"linear",
         "linear",
         {{0, 0}, {1, 0.25}, {4, 1}, {6, 0.775}, {8, 0.55}, {12, 0.1}, {13, 0.1}, {20, 0.1}}},
        {"cosine",
         "linear",
         {{2, 0.5}, {4, 1}, {6, kQuarter}, {8, 0.55}, {10, 1.1 - kQuarter}, {12, 0.1}, {13, 0.1}}},
        {"constant", "linear", {{2, 0.5}, {4, 1}, {12, 1}, {20, 1}}},
        {"inverse-square-root",
         "linear",
         {{4, 1}, {9, 2.0 / 3}, {12, 0.57735026918962576}, {13, 0.1}}},
        {"WSD", "exponential", {{2, 0.5}, {8, 1}, {10, kMin + 0.9 * (2 * kRoot - 1)}, {12, 0.1}}},
        {"WSD", "linear", {{8, 1}, {9, 0.775}, {12, 0.1}}},
        {"WSD", "cosine", {{8, 1}, {9, kQuarter}, {10, 0.55}, {13, 0.1}}},
        {"WSD", "minus_sqrt", {{8, 1}, {9, 0.55}, {12, 0.1}}}};
    for (const Curve& curve : curves) {
        SCOPED_TRACE(std::string(curve.decay) + " " + curve.wsd);
        AdamW optimizer = optimizer_of(1);
        OptimizerParamScheduler schedule(optimizer, {.min_lr = kMin,
                                                     .lr_warmup_steps = 4,
                                                     .lr_decay_steps = 12,
                                                     .lr_decay = lr_decay_of(curve.decay),
                                                     .wsd_decay_steps = 4,
                                                     .wsd_decay = wsd_decay_of(curve.wsd)});
        for (const auto& [step, rate] : curve.rates) {
            advance_to(schedule, step);
            EXPECT_NEAR(optimizer.param_groups()[0].lr, rate, 1e-15) << "step " << step;
        }
    }
}

TEST(OptimizerParamScheduler, StartsAtInitLrWithWarmupAndAtTheFullRateWithoutWarmup) {
    AdamW optimizer = optimizer_of(1), other = optimizer_of(1);
    OptimizerParamScheduler warm(optimizer,
                                 {.init_lr = 0.2, .lr_warmup_steps = 2.5, .lr_decay_steps = 10});
    EXPECT_EQ(optimizer.param_groups()[0].lr, 0.2);
    warm.step();
    EXPECT_NEAR(optimizer.param_groups()[0].lr, 0.52, 1e-15);
    OptimizerParamScheduler cold(other, {.lr_decay_steps = 4});
    EXPECT_EQ(other.param_groups()[0].lr, 1);
    cold.step();
    EXPECT_EQ(other.param_groups()[0].lr, 0.75);
}

// The weight decay grows from 0.01 to 0.05 in 8 steps. The expected values are computed as above:
// cosine at r = 1/4 has the factor (1 - sqrt(0.5)) / 2.
// Covers 16.is_train_batch_min.
TEST(OptimizerParamScheduler, IncreasesTheWeightDecay) {
    const auto decay_at = [](const char* style, std::int64_t step) {
        AdamW optimizer = optimizer_of(1, 0.3);
        OptimizerParamScheduler schedule(
            optimizer, {.lr_decay_steps = 8,
                        .start_weight_decay = 0.01,
                        .end_weight_decay = 0.05,
                        .weight_decay_steps = 8,
                        .weight_decay_increase = weight_decay_increase_of(style)});
        EXPECT_FALSE(schedule.can_look_ahead());
        advance_to(schedule, step);
        return optimizer.param_groups()[0].weight_decay;
    };
    for (const auto& [step, expected] :
         {std::pair<std::int64_t, double>{0, 0.01}, {2, 0.02}, {4, 0.03}, {8, 0.05}, {9, 0.05}})
        EXPECT_NEAR(decay_at("linear", step), expected, 1e-15) << step;
    for (const auto& [step, expected] : {std::pair<std::int64_t, double>{0, 0.01},
                                         {2, 0.01 + 0.02 * (1 - kRoot)},
                                         {4, 0.03},
                                         {9, 0.05}})
        EXPECT_NEAR(decay_at("cosine", step), expected, 1e-15) << step;
}

// Covers 16.is_train_batch_min.
TEST(OptimizerParamScheduler, KeepsTheRatiosOfGroupsAndAdvancesByItsIncrement) {
    AdamW optimizer(std::vector<AdamW::Group>{
        {{zeros({2}).set_requires_grad()}, {.lr = 1, .weight_decay = 0.5}},
        {{zeros({2}).set_requires_grad()}, {.lr = 0.5, .weight_decay = 0}}});
    OptimizerParamScheduler schedule(optimizer,
                                     {.min_lr = 0.2,
                                      .lr_decay_steps = 12,
                                      .start_weight_decay = 0,
                                      .end_weight_decay = 0.4,
                                      .weight_decay_steps = 12,
                                      .weight_decay_increase = WeightDecayIncrease::linear,
                                      .increment = 3});
    schedule.step();
    EXPECT_EQ(schedule.num_steps(), 3);
    EXPECT_NEAR(optimizer.param_groups()[0].lr, 0.8, 1e-15);
    EXPECT_NEAR(optimizer.param_groups()[1].lr, 0.4, 1e-15);
    EXPECT_NEAR(optimizer.param_groups()[0].weight_decay, 0.1, 1e-15);
    EXPECT_EQ(optimizer.param_groups()[1].weight_decay, 0);
    advance_to(schedule, 10);
    EXPECT_NEAR(optimizer.param_groups()[1].lr, 0.1, 1e-15);
}

TEST(OptimizerParamScheduler, LoadsItsPositionAndOptions) {
    AdamW optimizer = optimizer_of(1), other = optimizer_of(1);
    OptimizerParamScheduler schedule(
        optimizer, {.lr_decay_steps = 10, .lr_decay = LrDecay::cosine, .increment = 2});
    advance_to(schedule, 3);
    const Tree state = schedule.state_dict();
    EXPECT_EQ(state["lr_decay_style"].string(), "cosine");
    OptimizerParamScheduler loaded(other, {.lr_decay_steps = 4});
    loaded.load_state_dict(state);
    schedule.step();
    loaded.step();
    EXPECT_EQ(other.param_groups()[0].lr, optimizer.param_groups()[0].lr);
    EXPECT_TRUE(loaded.can_look_ahead());
}

TEST(OptimizerParamScheduler, RejectsInvalidOptions) {
    const auto invalid = [](const ParamScheduleOptions& options, const char* text) {
        AdamW optimizer = optimizer_of(1);
        expect_error<ValueError>({"OptimizerParamScheduler: ", text},
                                 [&] { OptimizerParamScheduler schedule(optimizer, options); });
    };
    invalid({.init_lr = 2, .lr_decay_steps = 1}, "init_lr must be between 0 and the initial rate");
    invalid({.min_lr = 2, .lr_decay_steps = 1},
            "min_lr must be between 0 and the initial rate 1: 2");
    invalid({}, "lr_decay_steps must be positive: 0");
    invalid({.lr_decay_steps = std::numeric_limits<double>::infinity()},
            "lr_decay_steps must be positive, and finite: inf");
    invalid({.lr_warmup_steps = 4, .lr_decay_steps = 4}, "less than lr_decay_steps 4: 4");
    invalid({.lr_decay_steps = 4, .lr_decay = LrDecay::wsd}, "wsd_decay_steps must be positive");
    invalid({.lr_decay_steps = 4, .start_weight_decay = 0.1}, "only start_weight_decay is set");
    invalid({.lr_decay_steps = 4, .start_weight_decay = 0.1, .end_weight_decay = 0},
            "end_weight_decay must be at least start_weight_decay 0.1: 0");
    invalid({.lr_decay_steps = 4, .start_weight_decay = 0.1, .end_weight_decay = 0.2},
            "end_weight_decay must be start_weight_decay 0.1 if weight_decay_increase is constant: "
            "0.2");
    invalid({.lr_decay_steps = 4, .increment = 0}, "increment must be positive: 0");
    expect_error<ValueError>({"lr_decay_style: must be one of constant, linear, ", "'cos'"},
                             [] { lr_decay_of("cos"); });
}

}  // namespace
}  // namespace axle::optim
