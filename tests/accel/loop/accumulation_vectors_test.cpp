// Compares gradient accumulation on each rank with recordings of Hugging Face Accelerate.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "nlohmann/json.hpp"
#include "optim/sgd.h"
#include "tests/accel/case_ranks.h"
#include "tests/accel/training.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nlohmann::json;
using tests::samples;
using Group = std::shared_ptr<dist::ProcessGroup>;
using Flags = std::vector<bool>;

data::DataLoader batches_for(const json& c, const char* count, const Group& group) {
    return data::DataLoader(samples(c[count].get<std::int64_t>() * group->size()));
}

// Saves a checkpoint and reads from it the number of micro-batches since the last reset.
std::int64_t step_of(Accelerator& accelerator, const std::string& folder) {
    accelerator.save_state(folder);
    const auto step = accel::CheckpointReader(folder)
                          .read(str("random_states_", accelerator.process_index()))["step"]
                          .integer();
    // All ranks must read this checkpoint before the next checkpoint replaces it.
    accelerator.wait_for_everyone();
    return step;
}

void three_epochs(const json& c, const Group& group, const std::string& folder) {
    Accelerator accelerator(
        {.gradient_accumulation_plugin =
             accel::GradientAccumulationPlugin{.num_steps = c["num_steps"].get<int>(),
                                               .sync_with_dataloader = c["sync_with_dataloader"]},
         .process_group = group});
    data::DataLoader loader = batches_for(c, "n_batches", group);
    accelerator.prepare(loader);
    for (const int epoch : {0, 1, 2}) {
        Flags sync;
        std::vector<std::int64_t> step;
        for (auto& batch : loader) {
            static_cast<void>(batch);
            auto scope = accelerator.accumulate();
            sync.push_back(accelerator.sync_gradients());
            step.push_back(step_of(accelerator, folder));
        }
        EXPECT_EQ(sync, c["sync"][epoch].get<Flags>()) << c << " epoch " << epoch;
        EXPECT_EQ(step, c["step"][epoch].get<std::vector<std::int64_t>>()) << c;
    }
}

void no_dataloader(const json& c, const Group& group) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = c["num_steps"], .process_group = group});
    EXPECT_TRUE(accelerator.sync_gradients());
    for (const bool expected : c["sync"].get<Flags>()) {
        auto scope = accelerator.accumulate();
        EXPECT_EQ(accelerator.sync_gradients(), expected) << c;
    }
}

void steps_change(const json& c, const Group& group) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .process_group = group});
    Flags sync;
    for (std::size_t i = 0; i < c["sync"].size(); ++i) {
        if (i == 4) accelerator.set_gradient_accumulation_steps(3);
        auto scope = accelerator.accumulate();
        sync.push_back(accelerator.sync_gradients());
    }
    EXPECT_EQ(sync, c["sync"].get<Flags>());
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
}

void nested_evaluation(const json& c, const Group& group) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = c["num_steps"], .process_group = group});
    data::DataLoader train = batches_for(c, "train_batches", group);
    data::DataLoader eval(samples(3 * group->size()));
    accelerator.prepare(train, eval);
    const bool broken_early = c["eval_broken_early"];
    json seen = json::array(), undisturbed = c["sync_and_end"];
    for (auto& batch : train) {
        static_cast<void>(batch);
        auto scope = accelerator.accumulate();
        seen.push_back({accelerator.sync_gradients(), train.end_of_dataloader()});
        if (seen.size() != 2) continue;
        for (auto& held_out : eval) {
            static_cast<void>(held_out);
            if (broken_early) break;
        }
    }
    // Accelerate misses the end of the pass in this case (tests/vectors/README.md).
    if (broken_early) undisturbed.back() = {true, true};
    EXPECT_EQ(seen, undisturbed) << c;
}

void left_early(const json& c, const Group& group) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = c["num_steps"], .process_group = group});
    data::DataLoader loader = batches_for(c, "train_batches", group);
    accelerator.prepare(loader);
    for (const char* pass : {"first", "second_epoch"}) {
        Flags sync;
        for (auto& batch : loader) {
            static_cast<void>(batch);
            auto scope = accelerator.accumulate();
            sync.push_back(accelerator.sync_gradients());
            if (sync.size() == c[pass].size()) break;
        }
        EXPECT_EQ(sync, c[pass].get<Flags>()) << pass;
    }
}

void two_accumulates(const json& c, const Group& group) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = c["num_steps"], .process_group = group});
    data::DataLoader loader = batches_for(c, "train_batches", group);
    accelerator.prepare(loader);
    std::vector<Flags> sync;
    for (auto& batch : loader) {
        static_cast<void>(batch);
        sync.emplace_back();
        for (int k = 0; k < 2; ++k) {
            auto scope = accelerator.accumulate();
            sync.back().push_back(accelerator.sync_gradients());
        }
    }
    EXPECT_EQ(sync, c["sync"].get<std::vector<Flags>>());
}

// Tests two Accelerators. In Accelerate, they share one state (see tests/vectors/README.md).
void second_accelerator(const Group& group) {
    const Accelerator first({.gradient_accumulation_steps = 4, .process_group = group});
    const Accelerator second({.process_group = group});
    EXPECT_EQ(first.gradient_accumulation_steps(), 4);
    EXPECT_EQ(second.gradient_accumulation_steps(), 1);
}

void plugin(const json& c, const Group& group) {
    accel::GradientAccumulationPlugin given;
    const json &fields = c["given"], &effective = c["effective"];
    if (fields.contains("num_steps")) given.num_steps = fields["num_steps"].get<int>();
    given.sync_with_dataloader = fields.value("sync_with_dataloader", given.sync_with_dataloader);
    given.sync_each_batch = fields.value("sync_each_batch", given.sync_each_batch);
    const Accelerator accelerator({.gradient_accumulation_plugin = given, .process_group = group});
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), effective["num_steps"]) << c;
    EXPECT_EQ(accelerator.gradient_state().sync_with_dataloader, effective["sync_with_dataloader"])
        << c;
    EXPECT_EQ(given.sync_each_batch, effective["sync_each_batch"]) << c;
}

// Covers 3.accumulate, 2.sync_gradients, 2.gradient_accumulation_steps, 2.step,
// 1.gradient_accumulation_steps, 1.gradient_accumulation_plugin, 6.GradientState,
// 7.GradientAccumulationPlugin.num_steps, 7.adjust_scheduler, 7.sync_with_dataloader,
// 7.nested, 7.several.
TEST(Accumulation, MatchesSyncFlagsAndCountsOfAccelerateExceptForDocumentedDifferences) {
    const tests::TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::on_ranks_of_each(tests::vectors("sync_gradients.json"),
                            [&](const json& c, const Group& group) {
                                const std::string kind = c.value("kind", "");
                                if (kind.empty()) return three_epochs(c, group, folder / "state");
                                if (kind == "no_dataloader") return no_dataloader(c, group);
                                if (kind == "steps_2_then_3_at_i4") return steps_change(c, group);
                                if (kind == "nested_eval_at_step1")
                                    return nested_evaluation(c, group);
                                if (kind == "early_break_iterator_kept_alive")
                                    return left_early(c, group);
                                if (kind == "two_accumulate_per_batch")
                                    return two_accumulates(c, group);
                                if (kind == "second_accelerator_overrides_shared_gradient_state")
                                    return second_accelerator(group);
                                if (kind == "plugin_kwargs") return plugin(c, group);
                                ADD_FAILURE() << "unknown kind of case: " << c;
                            });
}

// The linear regression of tests/golden/record_training.py.
struct Line : nn::Model<Line> {
    Tensor a = zeros(Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor b = zeros(Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor forward(const Tensor& x) { return a * x + b; }
    void visit(nn::Visitor& v) override { v("a", a), v("b", b); }
};

data::TensorDataset line_samples(std::int64_t n) {
    std::vector<double> x, y;
    for (std::int64_t i = 0; i < n; ++i) {
        x.push_back(static_cast<double>((i * 37) % 17 - 8) / 8);
        y.push_back(2 * x.back() + 3 + 0.1 * std::sin(static_cast<double>(i)));
    }
    return data::TensorDataset(
        Tree{{"x", tensor(x, {n}, {.dtype = f64})}, {"y", tensor(y, {n}, {.dtype = f64})}});
}

std::unique_ptr<optim::Optimizer> optimizer_named(const std::string& name,
                                                  const std::vector<Tensor>& params) {
    if (name == "sgd") return std::make_unique<optim::SGD>(params, optim::SGDOptions{.lr = 0.1});
    if (name == "sgdm")
        return std::make_unique<optim::SGD>(
            params, optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true});
    if (name == "adam") return std::make_unique<optim::Adam>(params, optim::AdamOptions{.lr = 0.1});
    EXPECT_EQ(name, "adamw");
    return std::make_unique<optim::AdamW>(params,
                                          optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.01});
}

void follow_training(const json& c, const Group& group) {
    SCOPED_TRACE(str(c["optimizer"], " steps ", c["num_steps"], " clip ", c["clip"].dump(),
                     " rank ", group->rank(), " of ", group->size()));
    Accelerator accelerator({.split_batches = c.value("split_batches", false),
                             .gradient_accumulation_steps = c["num_steps"],
                             .process_group = group});
    Line line;
    const auto adam_or_sgd = optimizer_named(c["optimizer"], line.parameters());
    optim::LambdaLR decay(*adam_or_sgd,
                          optim::LambdaLR::Factor([](auto k) { return 1 / (1 + 0.1 * k); }));
    data::DataLoader batches(line_samples(c["n"]), {.batch_size = c["batch_size"]});
    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(line, *adam_or_sgd, batches, decay);

    const auto close = [](double actual, const json& expected) {
        EXPECT_NEAR(actual, expected.get<double>(), 1e-9 * std::max(1.0, std::abs(actual)));
    };
    std::size_t i = 0;
    for (const int epoch : {0, 1}) {
        static_cast<void>(epoch);
        for (auto& batch : loader) {
            const auto& row = c["trace"].at(i++);
            auto scope = accelerator.accumulate(model);
            const Tensor loss = tests::squared_error(model(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            if (accelerator.sync_gradients() && !c["clip"].is_null()) {
                const double limit = c["clip"][1];
                if (c["clip"][0] == "norm")
                    close(accelerator.clip_grad_norm_(model.parameters(), limit).item(),
                          row["grad_norm"]);
                else
                    accelerator.clip_grad_value_(model.parameters(), limit);
            }
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();

            EXPECT_EQ(accelerator.sync_gradients(), row["sync"].get<bool>());
            close(loss.item(), row["local_loss"][static_cast<std::size_t>(group->rank())]);
            close(model.a.item(), row["a"]);
            close(model.b.item(), row["b"]);
            close(scheduler.get_last_lr()[0], row["lr"]);
        }
    }
    EXPECT_EQ(i, c["trace"].size());
}

// Covers 3.backward, 3.accumulate, 3.clip_grad_norm_, 3.clip_grad_value_, 5.step, 7.short,
// 1.split_batches.
TEST(Accumulation, MatchesLossesWeightsAndRatesOfAccelerate) {
    for (const json& file :
         {tests::vectors("training_trace.json"), tests::golden_json("training.json")})
        tests::on_ranks_of_each(file, follow_training);
}

}  // namespace
}  // namespace axle
