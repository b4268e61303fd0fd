// Compares prepared schedulers with recordings of Hugging Face Accelerate.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/accel/case_ranks.h"
#include "tests/accel/training.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nlohmann::json;
using Group = std::shared_ptr<dist::ProcessGroup>;

std::unique_ptr<optim::Scheduler> schedule_named(const std::string& name, optim::Optimizer& o) {
    using namespace optim;  // NOLINT: the test uses every schedule
    const auto lambda = [&](LambdaLR::Factor f) { return std::make_unique<LambdaLR>(o, f); };
    if (name == "lambda_lin10") return lambda([](auto t) { return 1 - t / 10.0; });
    if (name == "lambda_warm") return lambda([](auto t) { return std::min(1.0, (t + 1) / 4.0); });
    if (name == "step") return std::make_unique<StepLR>(o, 3);
    if (name == "multistep")
        return std::make_unique<MultiStepLR>(o, std::vector<std::int64_t>{2, 5}, 0.5);
    if (name == "exp") return std::make_unique<ExponentialLR>(o, 0.9);
    if (name == "cos") return std::make_unique<CosineAnnealingLR>(o, 12, 0.01);
    if (name == "coswr") return std::make_unique<CosineAnnealingWarmRestarts>(o, 4);
    if (name == "onecycle") return std::make_unique<OneCycleLR>(o, 1.0, 12);
    if (name == "linear") return std::make_unique<LinearLR>(o, 0.25, 1, 6);
    if (name == "constant") return std::make_unique<ConstantLR>(o, 0.5, 3);
    if (name == "poly") return std::make_unique<PolynomialLR>(o, 10, 2);
    if (name == "hf_linear")
        return std::unique_ptr<Scheduler>(new LambdaLR(get_linear_schedule_with_warmup(o, 4, 20)));
    if (name == "hf_cosine")
        return std::unique_ptr<Scheduler>(new LambdaLR(get_cosine_schedule_with_warmup(o, 4, 20)));
    return nullptr;
}

// Replays a recorded case in fp16, so that iterations with infinite gradients are skipped.
void follow(const json& c, const Group& group) {
    json options = c;
    options.erase("lr"), options.erase("last_epoch_and_step_count");
    SCOPED_TRACE(options.dump());
    Tensor w = ones({1}, {.requires_grad = true});
    optim::AdamW adamw({w}, {.lr = 1});
    const auto schedule = schedule_named(c["schedule"], adamw);
    ASSERT_NE(schedule, nullptr);
    Accelerator accelerator({.split_batches = c["split_batches"],
                             .mixed_precision = "fp16",
                             .gradient_accumulation_steps = c["num_steps"],
                             .step_scheduler_with_optimizer = c["step_with_optimizer"],
                             .process_group = group});
    accelerator.prepare(adamw, *schedule);
    const auto close = [&](double expected) {
        EXPECT_NEAR(schedule->get_last_lr()[0], expected, 1e-12);
        EXPECT_NEAR(adamw.param_groups()[0].lr, expected, 1e-12);
    };
    close(c["lr"][0]);
    const auto skipped = c["skipped_iters"].get<std::vector<std::size_t>>();
    for (std::size_t i = 0; i + 1 < c["lr"].size(); ++i) {
        auto scope = accelerator.accumulate();
        const bool skip = accelerator.sync_gradients() &&
                          std::find(skipped.begin(), skipped.end(), i) != skipped.end();
        accelerator.backward((w * (skip ? std::numeric_limits<double>::infinity() : 1.0)).sum());
        adamw.step();
        schedule->step();
        adamw.zero_grad();
        close(c["lr"][i + 1]);
        const json& counts = c["last_epoch_and_step_count"][i];
        EXPECT_EQ(schedule->last_epoch(), counts[0]);
        // The recorded version of PyTorch does not increment the step count of
        // CosineAnnealingWarmRestarts.
        EXPECT_EQ(schedule->step_count(), c["schedule"] == "coswr"
                                              ? counts[0].get<std::int64_t>() + 1
                                              : counts[1].get<std::int64_t>());
    }
}

// Covers 1.step_scheduler_with_optimizer, 5.AcceleratedScheduler, 5.AcceleratedScheduler.step,
// 5.adjust_scheduler, 5.param, 31.scheduler.
TEST(PreparedScheduler, HasTheRatesAndStepCountsOfAccelerateExceptForDocumentedDifferences) {
    const auto file = tests::vectors("scheduler_lr.json");
    tests::on_ranks_of_each(file, follow);
}

}  // namespace
}  // namespace axle
