// Tests passes whose number of micro-batches is not a multiple of the accumulation steps, and
// schedules that count micro-batches.
#include <memory>
#include <vector>

#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::GradientAccumulationPlugin;
using accel::ShortWindow;
using tests::expect_error;
using Group = std::shared_ptr<dist::ProcessGroup>;
using Flags = std::vector<bool>;
using Numbers = std::vector<double>;

constexpr int kBatchesPerEpoch = 5;

// A model whose gradient is the number of the batch in its pass (from 1), on every process.
struct OneWeight : nn::Model<OneWeight> {
    Tensor value = zeros(Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor forward(const Tensor& x) { return (value * x).mean(); }
    void visit(nn::Visitor& v) override { v("value", value); }
};

data::TensorDataset numbers(std::int64_t batches, std::int64_t processes) {
    std::vector<double> x;
    for (std::int64_t b = 1; b <= batches; ++b)
        for (std::int64_t p = 0; p < processes; ++p) x.push_back(static_cast<double>(b));
    return data::TensorDataset(Tree{{"x", tensor(x, {std::ssize(x)}, {.dtype = f64})}});
}

struct Course {
    Course(GradientAccumulationPlugin plugin, const Group& group, const char* precision = "no")
        : accelerator({.mixed_precision = precision,
                       .cpu = true,
                       .gradient_accumulation_plugin = plugin,
                       .process_group = group}),
          loader(numbers(kBatchesPerEpoch, group->size())) {
        accelerator.prepare(weight, sgd, loader, schedule);
    }
    void micro_batch(const Tree& batch) {
        auto scope = accelerator.accumulate(weight);
        accelerator.backward(weight(batch["x"]));
        sync.push_back(accelerator.sync_gradients());
        if (sync.back()) {
            accelerator.clip_grad_norm_(weight.parameters(), 1e9);
            gradients.push_back(weight.value.grad().item());
        }
        sgd.step();
        schedule.step();
        sgd.zero_grad();
    }
    void passes(int n) {
        for (int i = 0; i < n; ++i)
            for (auto& batch : loader) micro_batch(batch);
    }

    Accelerator accelerator;
    OneWeight weight;
    optim::SGD sgd{weight.parameters(), {.lr = 1}};
    optim::LambdaLR schedule{sgd, optim::LambdaLR::Factor([](auto) { return 1.0; })};
    data::DataLoader loader;
    Flags sync;
    Numbers gradients;
};

class ShortWindowOption : public testing::TestWithParam<int> {
  protected:
    void expect(ShortWindow kind, const Flags& sync, const Numbers& gradients) {
        for (const char* precision : {"no", "fp16"})
            tests::on_ranks(GetParam(), [&](const Group& group) {
                Course run({.num_steps = 2, .short_window = kind}, group, precision);
                run.passes(2);
                EXPECT_EQ(run.sync, sync);
                ASSERT_EQ(run.gradients.size(), gradients.size());
                double moved = 0;
                for (std::size_t i = 0; i < gradients.size(); ++i) {
                    EXPECT_NEAR(run.gradients[i], gradients[i], 1e-12) << precision << " " << i;
                    moved -= gradients[i];
                }
                EXPECT_NEAR(run.weight.value.item(), moved, 1e-12);
                EXPECT_EQ(run.schedule.last_epoch(), group->size() * std::ssize(gradients));
            });
    }
};
INSTANTIATE_TEST_SUITE_P(Processes, ShortWindowOption, testing::Values(1, 2));

// Covers 7.GradientAccumulationPlugin.num_steps, 7.short, 7.sync_with_dataloader, 31.section,
// 31.short.
TEST_P(ShortWindowOption, CanDivideGradientsByTheConfiguredSteps) {
    expect(ShortWindow::as_upstream, {0, 1, 0, 1, 1, 0, 1, 0, 1, 1},
           {1.5, 3.5, 2.5, 1.5, 3.5, 2.5});
}

// Covers 7.short, 30.6.
TEST_P(ShortWindowOption, CanDivideGradientsByTheNumberOfBatchesInTheWindow) {
    expect(ShortWindow::actual, {0, 1, 0, 1, 1, 0, 1, 0, 1, 1}, {1.5, 3.5, 5, 1.5, 3.5, 5});
}

// Covers 7.short, 30.6.
TEST_P(ShortWindowOption, CanContinueTheWindowInTheNextPass) {
    expect(ShortWindow::carry_over, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, {1.5, 3.5, 3, 2.5, 4.5});
}

// Covers 7.short, 30.6.
TEST_P(ShortWindowOption, CanDiscardTheWindow) {
    expect(ShortWindow::drop, {0, 1, 0, 1, 0, 0, 1, 0, 1, 0}, {1.5, 3.5, 1.5, 3.5});
}

// Each micro-batch has two losses of the model `often`. The model `once` is used only in the first
// micro-batch.
TEST(ShortWindow, ScalesGradientsOfAModelOnceIfItHasSeveralLosses) {
    Accelerator accelerator({.cpu = true,
                             .gradient_accumulation_plugin = GradientAccumulationPlugin{
                                 .num_steps = 3, .short_window = ShortWindow::actual}});
    OneWeight often, once;
    optim::SGD sgd_often(often.parameters(), {.lr = 1}), sgd_once(once.parameters(), {.lr = 1});
    data::DataLoader loader(numbers(2, 1));
    accelerator.prepare(often, once, sgd_often, sgd_once, loader);
    int batch_number = 0;
    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(often, once);
        accelerator.backward(often(batch["x"]));
        accelerator.backward(often(batch["x"]));
        if (batch_number++ == 0) accelerator.backward(once(batch["x"]));
        sgd_often.step(), sgd_once.step();
        sgd_often.zero_grad(), sgd_once.zero_grad();
    }
    EXPECT_NEAR(often.value.item(), -3, 1e-12);
    EXPECT_NEAR(once.value.item(), -0.5, 1e-12);
}

TEST(ShortWindow, CannotBeRescaledOrDroppedIfSyncWithDataloaderIsFalse) {
    for (const ShortWindow kind : {ShortWindow::actual, ShortWindow::drop})
        expect_error<UsageError>({"Accelerator: short_window", "sync_with_dataloader"}, [&] {
            const Accelerator accelerator(
                {.gradient_accumulation_plugin = GradientAccumulationPlugin{
                     .num_steps = 2, .sync_with_dataloader = false, .short_window = kind}});
        });
}

// An evaluation loop within the window has no effect.
TEST(ShortWindow, IsDroppedEvenIfAnEvaluationRunsWithinIt) {
    Course run({.num_steps = 2, .short_window = ShortWindow::drop}, dist::ProcessGroup::alone());
    data::DataLoader eval(numbers(3, 1));
    run.accelerator.prepare(eval);
    for (auto& batch : run.loader) {
        run.micro_batch(batch);
        for (auto& held_out : eval) static_cast<void>(held_out);
    }
    EXPECT_EQ(run.gradients, Numbers({1.5, 3.5}));
    EXPECT_FALSE(run.weight.value.grad().defined());
}

// This test saves after the last batch, before the pass has ended.
TEST(ShortWindow, IsNotSavedIfDropped) {
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    const GradientAccumulationPlugin plugin{.num_steps = 2, .short_window = ShortWindow::drop};
    Course saved(plugin, dist::ProcessGroup::alone());
    for (auto& batch : saved.loader) {
        saved.micro_batch(batch);
        if (saved.loader.end_of_dataloader()) saved.accelerator.save_state(folder / "state");
    }
    Course loaded(plugin, dist::ProcessGroup::alone());
    loaded.accelerator.load_state(folder / "state");
    loaded.passes(1);
    EXPECT_EQ(loaded.sync, Flags({0, 1, 0, 1, 0}));
    EXPECT_EQ(loaded.gradients, Numbers({1.5, 3.5}));
}

// This test saves after three of the four batches of the window before the short window.
TEST(ShortWindow, GivesTheSameGradientsAfterResuming) {
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    const GradientAccumulationPlugin plugin{
        .num_steps = 4, .adjust_scheduler = true, .short_window = ShortWindow::actual};
    Course saved(plugin, dist::ProcessGroup::alone());
    for (auto& batch : saved.loader) {
        saved.micro_batch(batch);
        if (saved.loader.position() == 3) saved.accelerator.save_state(folder / "state");
    }
    Course loaded(plugin, dist::ProcessGroup::alone());
    loaded.accelerator.load_state(folder / "state");
    loaded.passes(1);
    EXPECT_EQ(loaded.gradients, Numbers({2.5, 5}));
    EXPECT_EQ(loaded.gradients, saved.gradients);
    EXPECT_EQ(loaded.schedule.last_epoch(), kBatchesPerEpoch);
}

// If adjust_scheduler is set, a schedule for training without accumulation ends at the end of the
// data.
// Covers 5.adjust_scheduler, 7.adjust_scheduler, 29.KwargsHandler, 31.adjust_scheduler.
TEST(AdjustScheduler, CountsMicroBatchesOfAllProcesses) {
    for (const int size : {1, 2})
        tests::on_ranks(size, [&](const Group& group) {
            for (const ShortWindow kind : {ShortWindow::as_upstream, ShortWindow::actual}) {
                Course run({.num_steps = 2, .adjust_scheduler = true, .short_window = kind}, group);
                Numbers epochs;
                for (auto& batch : run.loader) {
                    run.micro_batch(batch);
                    epochs.push_back(static_cast<double>(run.schedule.last_epoch()) / size);
                }
                EXPECT_EQ(epochs, Numbers({0, 2, 2, 4, 5}));
            }
            Course carried(
                {.num_steps = 2, .adjust_scheduler = true, .short_window = ShortWindow::carry_over},
                group);
            carried.passes(2);
            EXPECT_EQ(carried.schedule.last_epoch(), 10 * size);
            Course off({.num_steps = 2, .adjust_scheduler = false}, group);
            off.passes(1);
            EXPECT_EQ(off.schedule.last_epoch(), 3 * size);
        });
}

// Covers 5.step.
TEST(AdjustScheduler, AdvancesByMicroBatchesUntilTheScheduleEnds) {
    Tensor w = ones({1}, {.requires_grad = true});
    optim::SGD sgd({w}, {.lr = 1, .momentum = 0.9});
    optim::OneCycleLR schedule(sgd, 1.0, 6);
    Accelerator accelerator(
        {.cpu = true,
         .gradient_accumulation_plugin =
             GradientAccumulationPlugin{.num_steps = 4, .adjust_scheduler = true},
         .scheduler_steps = accel::SchedulerSteps::per_update});
    accelerator.prepare(sgd, schedule);
    for (const std::int64_t epoch : {0, 0, 0, 4, 4, 4, 4, 6, 6, 6, 6, 6}) {
        auto scope = accelerator.accumulate();
        accelerator.backward(w.sum());
        sgd.step(), schedule.step(), sgd.zero_grad();
        EXPECT_EQ(schedule.last_epoch(), epoch);
    }
}

}  // namespace
}  // namespace axle
