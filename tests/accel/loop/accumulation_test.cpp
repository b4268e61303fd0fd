// Tests gradient accumulation: which micro-batches end with an update, how gradients are scaled,
// averaged and clipped, and when prepared optimizers and schedulers step.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "nlohmann/json.hpp"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using tests::samples;

// Covers 7.nested, 6.GradientState.
TEST(Accumulation, IsNotChangedByAnEvaluationDuringTheLastBatch) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    data::DataLoader train(samples(3)), eval(samples(2));
    accelerator.prepare(train, eval);
    for (const int epoch : {0, 1}) {
        std::vector<bool> sync;
        for (auto& batch : train) {
            static_cast<void>(batch);
            auto scope = accelerator.accumulate();
            sync.push_back(accelerator.sync_gradients());
            if (train.end_of_dataloader())
                for (auto& held_out : eval) static_cast<void>(held_out);
        }
        EXPECT_EQ(sync, std::vector<bool>({false, true, true})) << epoch;
    }
}

TEST(Accumulation, IsNotChangedByAnInterruptedEvaluation) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    data::DataLoader train(samples(5)), eval(samples(3));
    accelerator.prepare(train, eval);
    std::vector<bool> sync;
    for (auto& batch : train) {
        static_cast<void>(batch);
        auto scope = accelerator.accumulate();
        sync.push_back(accelerator.sync_gradients());
        EXPECT_EQ(train.end_of_dataloader(), sync.size() == 5);
        if (sync.size() != 2) continue;
        for (auto& held_out : eval) {
            static_cast<void>(held_out);
            break;
        }
    }
    EXPECT_EQ(sync, std::vector<bool>({false, true, false, true, true}));
}

TEST(Accumulation, RejectsZeroSteps) {
    Accelerator accelerator({.gradient_accumulation_steps = 3});
    tests::expect_error<ValueError>({"set_gradient_accumulation_steps: steps must be positive: 0"},
                                    [&] { accelerator.set_gradient_accumulation_steps(0); });
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
}

// Covers 3.backward.
TEST(Accumulation, DividesTheLossByGradientAccumulationSteps) {
    Accelerator accelerator({.gradient_accumulation_steps = 4});
    Tensor w = ones({2}, {.dtype = f64, .requires_grad = true});
    accelerator.backward((w * 3.0).sum());
    accelerator.backward((w * 5.0).sum());
    EXPECT_EQ(w.grad().to_vector(), std::vector<double>({2, 2}));
}

// Covers 3.backward.
TEST(AcceleratorBackward, RetainsTheAutogradGraphOnlyOnRequest) {
    for (const auto rule : {accel::ShortWindow::as_upstream, accel::ShortWindow::actual}) {
        Accelerator accelerator({.gradient_accumulation_plugin = {{.short_window = rule}}});
        const Tensor w = full({2}, 3.0, {.dtype = f64, .requires_grad = true});
        const Tensor loss = (w * w).sum();
        accelerator.backward(loss, {.retain_graph = true});
        accelerator.backward(loss);
        EXPECT_EQ(w.grad().to_vector(), std::vector<double>({12, 12}));
        tests::expect_error<UsageError>({"backward: the graph was freed", "retain_graph"},
                                        [&] { accelerator.backward(loss); });
    }
}

// The loop calls accumulate() twice per batch, and every call begins a micro-batch.
// Covers 7.several, 7.several-accumulate.
TEST(Accumulation, CountsEachAccumulateCallOfABatchAsAMicroBatch) {
    using Flags = std::vector<bool>;
    for (const auto& [plugin, expected] :
         {std::pair(accel::GradientAccumulationPlugin{.num_steps = 2}, Flags{0, 1, 0, 1, 1, 1}),
          std::pair(accel::GradientAccumulationPlugin{.num_steps = 2,
          .short_window = accel::ShortWindow::drop},
                    Flags{0, 1, 0, 1, 0, 1}),
          std::pair(accel::GradientAccumulationPlugin{.num_steps = 2,
          .short_window = accel::ShortWindow::carry_over},
                    Flags{0, 1, 0, 1, 0, 1})}) {
        Accelerator accelerator({.gradient_accumulation_plugin = plugin});
        data::DataLoader loader(samples(3));
        accelerator.prepare(loader);
        for (const int epoch : {0, 1}) {
            Flags sync;
            for (auto& batch : loader)
                for (int k = 0; k < 2; ++k) {
                    static_cast<void>(batch);
                    auto scope = accelerator.accumulate();
                    sync.push_back(accelerator.sync_gradients());
                }
            EXPECT_EQ(sync, expected) << epoch;
        }
    }
}

// The test runs on one process, because the values do not depend on the number of processes.
// Covers 3.clip_grad_norm_, 3.clip_grad_value_, 3.clipgrad_norm, 3.clipgrad_value.
TEST(Clipping, GivesTheNormsAndGradientsOfAccelerate) {
    const auto file = tests::vectors("clip_grad.json");
    ASSERT_FALSE(file["cases"].empty());
    const auto with_grad = [](const std::vector<double>& values) {
        const auto n = static_cast<std::int64_t>(values.size());
        Tensor p = zeros({n}, {.dtype = f64, .requires_grad = true});
        p.set_grad(tensor(values, {n}, {.dtype = f64}));
        return p;
    };
    const auto expect = [](const Tensor& p, const std::vector<double>& clipped) {
        const std::vector<double> now = p.grad().to_vector();
        ASSERT_EQ(now.size(), clipped.size());
        for (std::size_t k = 0; k < now.size(); ++k) EXPECT_NEAR(now[k], clipped[k], 1e-12);
    };
    for (const char* precision : {"no", "fp16"})
        for (const auto& c : file["cases"]) {
            SCOPED_TRACE(c.dump());
            Accelerator accelerator({.mixed_precision = precision, .cpu = true});
            if (c["kind"] == "value") {
                const Tensor p = with_grad(c["grads"].get<std::vector<double>>());
                accelerator.clip_grad_value_({p}, c["clip_value"]);
                expect(p, c["clipped"].get<std::vector<double>>());
                continue;
            }
            ASSERT_EQ(c["kind"], "norm");
            std::vector<Tensor> params = {
                zeros({2}, {.requires_grad = true})};  // a parameter without a gradient
            for (const auto& g : c["grads"]) params.push_back(with_grad(g));
            const nlohmann::json& type = c["norm_type"];  // a number, or "inf"
            const double norm_type =
                type.is_string() ? std::stod(type.get<std::string>()) : type.get<double>();
            const double norm =
                accelerator.clip_grad_norm_(params, c["max_norm"], norm_type).item();
            EXPECT_NEAR(norm, c["total_norm"].get<double>(), 1e-12);
            for (std::size_t i = 1; i < params.size(); ++i)
                expect(params[i], c["clipped"][i - 1].get<std::vector<double>>());
        }
}

// Covers 3.clip_grad_norm_, 3.clip_grad_value_, 30.8.
TEST(Clipping, IsRejectedBetweenUpdates) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    const Tensor w = ones({2}, {.requires_grad = true});
    auto scope = accelerator.accumulate();
    accelerator.backward(w.sum());
    tests::expect_error<UsageError>({"clip_grad_norm_", "accelerator.sync_gradients()"},
                                    [&] { accelerator.clip_grad_norm_({w}, 1); });
    tests::expect_error<UsageError>({"clip_grad_value_", "accelerator.sync_gradients()"},
                                    [&] { accelerator.clip_grad_value_({w}, 1); });
}

// Covers 5.AcceleratedOptimizer, 5.step, 5.zero_grad.
TEST(PreparedOptimizer, SkipsStepAndZeroGradBetweenUpdatesAlsoForAddedGroups) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    const Tensor w = ones({1}, {.requires_grad = true}), late = ones({1}, {.requires_grad = true});
    optim::SGD sgd({w}, {.lr = 0.5});
    accelerator.prepare(sgd);
    sgd.add_param_group({{late}, {.lr = 0.25}});
    int calls = 0;
    const auto closure = [&] {
        ++calls;
        const Tensor loss = (w * 2.0 + late).sum();
        accelerator.backward(loss);
        return loss.detach();
    };
    {
        auto scope = accelerator.accumulate();
        EXPECT_FALSE(sgd.step(closure).defined());
        EXPECT_EQ(calls, 0);
        accelerator.backward((w * 2.0 + late).sum());
        sgd.zero_grad();
        EXPECT_EQ(w.grad().item(), 1);
    }
    auto scope = accelerator.accumulate();
    EXPECT_EQ(sgd.step(closure).item(), 3);
    EXPECT_EQ(w.item(), 0);
    EXPECT_EQ(late.item(), 0.75);
    EXPECT_FALSE(sgd.step_was_skipped());
    sgd.zero_grad(false);
    EXPECT_EQ(w.grad().item(), 0);
    sgd.zero_grad();
    EXPECT_FALSE(w.grad().defined());
    sgd.param_groups()[1].lr = 2;
    EXPECT_EQ(sgd.state_dict()["param_groups"][1]["lr"].number(), 2);
}

// Tests combinations of the options scheduler_steps and split_batches on two processes.
// Covers 5.AcceleratedScheduler, 5.step, 30.2, 31.scheduler.
TEST(PreparedScheduler, StepsOncePerProcessOrOncePerUpdate) {
    tests::on_ranks(2, [](const std::shared_ptr<dist::ProcessGroup>& group) {
        for (const auto& [steps, split, expected] :
             {std::tuple(accel::SchedulerSteps::per_process, false, 2),
              std::tuple(accel::SchedulerSteps::per_process, true, 1),
              std::tuple(accel::SchedulerSteps::per_update, false, 1)}) {
            Accelerator accelerator({.split_batches = split,
                                     .cpu = true,
                                     .scheduler_steps = steps,
                                     .process_group = group});
            const Tensor w = ones({1}, {.requires_grad = true});
            optim::SGD sgd({w}, {.lr = 1});
            optim::LambdaLR schedule(sgd, optim::LambdaLR::Factor([](auto k) {
                                         return 1 - 0.1 * static_cast<double>(k);
                                     }));
            accelerator.prepare(schedule, sgd);
            accelerator.backward(w.sum());
            sgd.step(), schedule.step();
            EXPECT_EQ(schedule.last_epoch(), expected);
            EXPECT_NEAR(schedule.get_last_lr()[0], 1 - 0.1 * expected, 1e-12);
            EXPECT_EQ(schedule.state_dict()["last_epoch"].integer(), expected);
        }
    });
}

// loss.backward() neither divides the loss by gradient_accumulation_steps nor multiplies it by the
// loss scale of fp16.
// Covers 3.no_sync, 3.backward.
TEST(TensorBackward, AveragesGradientsOfPreparedModels) {
    const nn::Linear start(2, 1);
    tests::on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        for (const char* precision : {"no", "fp16"}) {
            Accelerator accelerator({.mixed_precision = precision,
                                     .gradient_accumulation_steps = 2,
                                     .cpu = true,
                                     .process_group = group});
            nn::Linear one = start.clone(), two = start.clone();
            accelerator.prepare(one, two);
            const Tensor x = full({1, 2}, group->rank() + 1.0);
            const auto backward = [&] { (one(x) + two(x)).sum().backward(); };
            {
                auto scope = accelerator.accumulate();  // accumulates for all models
                backward();
                EXPECT_EQ(one.weight.grad()[0][0].item(), group->rank() + 1);
                EXPECT_EQ(two.weight.grad()[0][0].item(), group->rank() + 1);
            }
            auto scope = accelerator.accumulate(one, two);
            backward();
            EXPECT_EQ(one.weight.grad()[0][0].item(), 3);
            EXPECT_EQ(two.weight.grad()[0][0].item(), 3);
        }
    });
}

}  // namespace
}  // namespace axle
