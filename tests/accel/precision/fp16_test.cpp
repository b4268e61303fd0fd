// Tests mixed precision in f16 on the CPU: unscaling of gradients, skipped steps, updates of the
// scale.
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "nn/layers/linear.h"
#include "optim/grad_scaler.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;

using tests::expect_error;
using tests::SmallNet;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

accel::AcceleratorOptions fp16(int accumulation = 1) {
    return {
        .mixed_precision = "fp16",
        .gradient_accumulation_steps = accumulation,
        .cpu = true,
        .grad_scaler_kwargs = accel::GradScalerKwargs{.init_scale = 1024, .growth_interval = 3}};
}

// A model with one parameter. The test sets its gradient.
struct Weight : nn::Model<Weight> {
    Tensor value = tensor({1.0, 2}, {2}, {.requires_grad = true});
    Tensor forward(const Tensor& x) { return sum(value * x); }
    void visit(nn::Visitor& v) override { v("value", value); }
};

struct Objects {
    explicit Objects(const accel::AcceleratorOptions& options = fp16()) : accelerator(options) {
        accelerator.prepare(one, two, sgd_one, sgd_two, schedule);
    }
    void backward(Weight& weight, double gradient) {
        accelerator.backward(weight(full({2}, gradient)));
    }
    double scale() { return accelerator.scaler()->get_scale(); }

    Weight one, two;
    optim::SGD sgd_one{one.parameters(), {.lr = 1}};
    optim::SGD sgd_two{two.parameters(), {.lr = 1}};
    optim::StepLR schedule{sgd_one, 1, 0.5};
    Accelerator accelerator;
};

// Covers 1.mixed_precision, 8.PrecisionType, 8.model, 31.fp16.
TEST(Fp16, TrainsLikeF32UpToRounding) {
    std::vector<double> losses[2];
    for (const bool half : {false, true}) {
        manual_seed(3);
        SmallNet net;
        net.dropout.eval();
        optim::AdamW adamw(net.parameters(), {.lr = 0.02});
        Accelerator accelerator({.mixed_precision = half ? "fp16" : "no", .cpu = true});
        accelerator.prepare(net, adamw);
        manual_seed(4);
        const Tensor x = randn({16, 4}), y = randn({16, 1});
        for (int i = 0; i < 30; ++i) {
            const Tensor loss = tests::squared_error(net(x), y);
            EXPECT_EQ(net.hidden_dtype, half ? f16 : f32);
            accelerator.backward(loss);
            EXPECT_EQ(net.in.weight.grad().dtype(), f32);
            adamw.step();
            adamw.zero_grad();
            losses[half].push_back(loss.item());
        }
    }
    EXPECT_LT(losses[0].back(), 0.8 * losses[0].front());
    for (std::size_t i = 0; i < losses[0].size(); ++i)
        EXPECT_NEAR(losses[1][i], losses[0][i], 0.01 * losses[0][0]) << i;
}

// Covers 2.optimizer_step_was_skipped, 3.optimizer_step_was_skipped, 5.step_was_skipped,
// 8.GradScaler, 8.GradScalerKwargs.
TEST(Fp16, SkipsStepAndScheduleAndHalvesTheScaleOnOverflow) {
    Objects o;
    for (const double gradient : {1.0, kInfinity, 1.0}) {
        const bool bad = gradient == kInfinity;
        const std::vector<double> before = o.one.value.to_vector();
        const double lr = o.sgd_one.param_groups()[0].lr, scale = o.scale();
        {
            auto scope = o.accelerator.accumulate(o.one);
            o.backward(o.one, gradient);
            o.sgd_one.step();
            EXPECT_EQ(o.scale(), scale);  // the other optimizer may still step
            o.schedule.step();
            o.sgd_one.zero_grad();
        }
        EXPECT_EQ(o.accelerator.optimizer_step_was_skipped(), bad);
        EXPECT_EQ(o.sgd_one.param_groups()[0].lr, bad ? lr : lr / 2);
        EXPECT_EQ(o.scale(), bad ? scale / 2 : scale);
        EXPECT_NEAR(o.one.value[0].item(), bad ? before[0] : before[0] - lr, 1e-6);
        EXPECT_FALSE(o.one.value.grad().defined());
    }
    EXPECT_EQ(o.schedule.last_epoch(), 2);
}

// Covers 1.step_scheduler_with_optimizer, 5.step.
TEST(Fp16, AdvancesTheScheduleOnSkippedStepsIfNotSteppedWithOptimizer) {
    accel::AcceleratorOptions options = fp16();
    options.step_scheduler_with_optimizer = false;
    Objects o(options);
    o.backward(o.one, kInfinity);
    o.sgd_one.step();
    o.schedule.step();
    EXPECT_TRUE(o.accelerator.optimizer_step_was_skipped());
    EXPECT_EQ(o.schedule.last_epoch(), 1);
}

// Covers 8.GradScaler, 5.step_was_skipped.
TEST(Fp16, ChecksAccumulatedGradientsOncePerUpdate) {
    Objects o(fp16(3));
    for (const double gradient : {1.0, kInfinity, 1.0, 1.0, 1.0, 1.0}) {
        auto scope = o.accelerator.accumulate(o.one);
        o.backward(o.one, gradient);
        o.sgd_one.step();
        o.schedule.step();
        o.sgd_one.zero_grad();
    }
    EXPECT_EQ(o.scale(), 512);
    EXPECT_EQ(o.schedule.last_epoch(), 1);
    EXPECT_EQ(o.one.value.to_vector(), std::vector<double>({0, 1}));
}

// Covers 3.clip_grad_norm_, 3.clip_grad_value_, 3.unscale_gradients, 30.8.
TEST(Fp16, ClipsUnscaledGradients) {
    Objects o;
    o.backward(o.one, 3);
    EXPECT_NEAR(o.accelerator.clip_grad_norm_(o.one.parameters(), 100).item(), 3 * std::sqrt(2.0),
                1e-5);
    o.accelerator.unscale_gradients();
    o.accelerator.clip_grad_value_(o.one.parameters(), 2);
    EXPECT_NEAR(o.accelerator.clip_grad_norm_(o.one.parameters(), 1).item(), 2 * std::sqrt(2.0),
                1e-5);
    o.sgd_one.step();
    EXPECT_NEAR(o.one.value[0].item(), 1 - std::sqrt(0.5), 1e-5);
}

// Covers 3.unscale_gradients.
TEST(Fp16, UnscalesGradientsOfListedOptimizersOnceAndRejectsNull) {
    for (const bool both : {false, true}) {
        Objects o;
        o.backward(o.one, 3);
        o.backward(o.two, 2);
        std::vector<optim::Optimizer*> optimizers = {&o.sgd_two};
        if (both) optimizers.push_back(&o.sgd_one);
        for (int time = 0; time < 2; ++time) o.accelerator.unscale_gradients(optimizers);
        EXPECT_EQ(o.two.value.grad().to_vector(), std::vector<double>(2, 2));
        EXPECT_EQ(o.one.value.grad().to_vector(), std::vector<double>(2, both ? 3 : 3 * 1024));
        expect_error<UsageError>({"unscale_gradients: optimizers[1] is null"}, [&] {
            o.accelerator.unscale_gradients({&o.sgd_one, nullptr});
        });
    }
}

TEST(Fp16, RejectsClippingBetweenUpdates) {
    Objects o(fp16(2));
    auto scope = o.accelerator.accumulate(o.one);
    o.backward(o.one, 1);
    expect_error<UsageError>({"clip_grad_norm_", "sync_gradients"},
                             [&] { o.accelerator.clip_grad_norm_(o.one.parameters(), 1); });
    expect_error<UsageError>({"clip_grad_value_", "sync_gradients"},
                             [&] { o.accelerator.clip_grad_value_(o.one.parameters(), 1); });
}

// Covers 8.multi-optimizer.
TEST(Fp16, UpdatesTheScaleOnceForAllOptimizers) {
    Objects o;
    for (int i = 0; i < 2; ++i) {
        const bool bad = i == 1;
        auto scope = o.accelerator.accumulate(o.one, o.two);
        o.backward(o.one, bad ? kInfinity : 1);
        o.backward(o.two, 1);
        o.sgd_one.step();
        EXPECT_EQ(o.scale(), 1024);
        o.sgd_two.step();
        EXPECT_EQ(o.scale(), bad ? 512 : 1024);
        EXPECT_EQ(o.sgd_one.step_was_skipped(), bad);
        EXPECT_FALSE(o.sgd_two.step_was_skipped());
        EXPECT_TRUE(o.accelerator.optimizer_step_was_skipped() == bad);
        o.sgd_one.zero_grad();
        o.sgd_two.zero_grad();
    }
    EXPECT_EQ(o.one.value[0].item(), 0);
    EXPECT_EQ(o.two.value[0].item(), -1);
}

// Each model has its own backward, step and clipping, and also gets gradients from the other
// model's backward. The loop does not call accumulate().
TEST(Fp16, UnscalesGradientsWithTheScaleOfTheirLossIfModelsAlternate) {
    Objects o;
    for (int i = 0; i < 8; ++i) {
        for (const bool first : {true, false}) {
            Weight& mine = first ? o.one : o.two;
            optim::SGD& sgd = first ? o.sgd_one : o.sgd_two;
            sgd.zero_grad();
            o.accelerator.backward(o.one(full({2}, 1.0)) + o.two(full({2}, 1.0)));
            EXPECT_NEAR(o.accelerator.clip_grad_norm_(mine.parameters(), 100).item(),
                        std::sqrt(2.0), 1e-5);
            const double before = mine.value[0].item();
            sgd.step();
            EXPECT_NEAR(mine.value[0].item(), before - 1, 1e-5) << i;
        }
    }
    EXPECT_GT(o.scale(), 1024);
}

TEST(Fp16, LowersTheScaleOnOverflowEvenIfAnotherOptimizerNeverSteps) {
    Objects o;
    for (int i = 0; i < 4; ++i) {
        o.accelerator.backward(o.one(full({2}, i == 1 ? kInfinity : 1)) + o.two(full({2}, 1.0)));
        o.sgd_one.step();
        o.sgd_one.zero_grad();
    }
    EXPECT_LT(o.scale(), 1024);
}

TEST(Fp16, DoesNotChangeTheScaleOnStepsWithoutGradients) {
    Objects o;
    o.backward(o.one, kInfinity);
    o.sgd_one.step();
    o.sgd_one.zero_grad();
    EXPECT_TRUE(o.accelerator.optimizer_step_was_skipped());
    o.sgd_one.step();
    EXPECT_FALSE(o.accelerator.optimizer_step_was_skipped());
    EXPECT_EQ(o.scale(), 512);
}

// Covers 2.scaler, 8.GradScalerKwargs.
TEST(Fp16, DoesNotScaleGradientsIfTheScalerIsDisabled) {
    accel::AcceleratorOptions options = fp16();
    options.grad_scaler_kwargs->enabled = false;
    Objects o(options);
    EXPECT_EQ(o.accelerator.scaler(), nullptr);
    o.backward(o.one, 1);
    EXPECT_EQ(o.one.value.grad()[0].item(), 1);
}

TEST(Fp16, DoesNotUnscaleGradientsAfterFreeMemory) {
    Objects o;
    o.backward(o.one, 1);
    o.sgd_one.step();
    o.sgd_one.zero_grad();
    o.accelerator.free_memory();
    sum(o.one.value).backward();
    o.sgd_one.step();
    EXPECT_EQ(o.one.value[0].item(), -1);
}

// Covers 10.scaler.pt.
TEST(Fp16, RestoresTheScalerFromACheckpointOrThrowsIfItIsMissing) {
    const tests::TemporaryFolder temporary;
    const fs::path folder = temporary / "state";
    const auto step = [](Objects& o, double gradient) {
        auto scope = o.accelerator.accumulate(o.one);
        o.backward(o.one, gradient);
        o.sgd_one.step();
        o.schedule.step();
        o.sgd_one.zero_grad();
    };
    Objects saved;
    step(saved, kInfinity), step(saved, 1), step(saved, 1);
    saved.accelerator.save_state(folder.string());
    EXPECT_TRUE(fs::exists(folder / "scaler.json"));
    Objects loaded;
    loaded.accelerator.load_state(folder.string());
    EXPECT_EQ(to_json(loaded.accelerator.scaler()->state_dict()),
              to_json(saved.accelerator.scaler()->state_dict()));
    step(saved, 1), step(loaded, 1);
    EXPECT_EQ(loaded.scale(), 1024);
    EXPECT_EQ(loaded.scale(), saved.scale());
    tests::expect_same_bits(loaded.one.value.detach(), saved.one.value.detach());
    accel::AcceleratorOptions options = fp16();
    options.grad_scaler_kwargs->enabled = false;
    Objects plain(options);
    plain.accelerator.save_state(folder.string());
    expect_error<FileError>({folder.c_str(), "scaler.json"},
                            [&] { loaded.accelerator.load_state(folder.string()); });
}

}  // namespace
}  // namespace axle
