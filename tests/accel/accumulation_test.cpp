// When an update happens, and what it does, against what Hugging Face Accelerate does.
#include <cmath>
#include <memory>
#include <vector>

#include "accel/checkpoint.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::recorded;
using tests::samples;

nlohmann::json sync_case(const std::string& kind, int num_steps = 0) {
    const auto file = recorded("vectors/sync_gradients.json");
    for (const auto& c : file["cases"])
        if (c.value("kind", "") == kind && (num_steps == 0 || c["num_steps"] == num_steps))
            return c;
    ADD_FAILURE() << "no case " << kind;
    return {};
}

// Micro-batches since the last reset, as a checkpoint has it.
std::int64_t step_of(Accelerator& accelerator, const tests::TemporaryFolder& folder) {
    accelerator.save_state(folder / "state");
    return accel::CheckpointReader(folder / "state").read("random_states_0")["step"].integer();
}

TEST(Accumulation, SyncsAndCountsAsAccelerateOverThreeEpochs) {
    const tests::TemporaryFolder folder(tests::Kept::in_memory);
    int cases = 0;
    const auto file = recorded("vectors/sync_gradients.json");
    for (const auto& c : file["cases"]) {
        if (!c.contains("n_batches")) continue;
        ++cases;
        Accelerator accelerator({.gradient_accumulation_plugin = accel::GradientAccumulationPlugin{
                                     .num_steps = c["num_steps"].get<int>(),
                                     .sync_with_dataloader = c["sync_with_dataloader"]}});
        data::DataLoader loader(samples(c["n_batches"]));
        accelerator.prepare(loader);
        for (const int epoch : {0, 1, 2}) {
            std::vector<bool> sync;
            std::vector<std::int64_t> step;
            for (auto& batch : loader) {
                static_cast<void>(batch);
                auto scope = accelerator.accumulate();
                sync.push_back(accelerator.sync_gradients());
                step.push_back(step_of(accelerator, folder));
            }
            EXPECT_EQ(sync, c["sync"][epoch].get<std::vector<bool>>()) << c << " epoch " << epoch;
            EXPECT_EQ(step, c["step"][epoch].get<std::vector<std::int64_t>>()) << c;
        }
    }
    EXPECT_EQ(cases, 22);
}

TEST(Accumulation, CountsMicroBatchesWithoutALoader) {
    for (const int num_steps : {2, 3}) {
        Accelerator accelerator({.gradient_accumulation_steps = num_steps});
        EXPECT_TRUE(accelerator.sync_gradients());
        for (const bool expected :
             sync_case("no_dataloader", num_steps)["sync"].get<std::vector<bool>>()) {
            auto scope = accelerator.accumulate();
            EXPECT_EQ(accelerator.sync_gradients(), expected);
        }
    }
}

TEST(Accumulation, AnEvaluationInsideThePassDoesNotDisturbItHoweverItEnds) {
    const auto c = sync_case("nested_eval_at_step1");
    for (const bool broken_early : {false, true}) {
        Accelerator accelerator({.gradient_accumulation_steps = c["num_steps"]});
        data::DataLoader train(samples(c["train_batches"])), eval(samples(3));
        accelerator.prepare(train, eval);
        std::size_t i = 0;
        for (auto& batch : train) {
            static_cast<void>(batch);
            auto scope = accelerator.accumulate();
            EXPECT_EQ(accelerator.sync_gradients(), c["sync_and_end"][i][0].get<bool>()) << i;
            EXPECT_EQ(train.end_of_dataloader(), c["sync_and_end"][i][1].get<bool>()) << i;
            if (i++ == 1)
                for (auto& held_out : eval) {
                    static_cast<void>(held_out);
                    if (broken_early) break;
                }
        }
        EXPECT_EQ(i, c["sync_and_end"].size());
    }
}

TEST(Accumulation, AnEvaluationOnTheLastBatchDoesNotDisturbTheNextPass) {
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

TEST(Accumulation, CountingGoesOnWhereAPassWasLeftEarly) {
    const auto c = sync_case("early_break");
    Accelerator accelerator({.gradient_accumulation_steps = c["num_steps"]});
    data::DataLoader loader(samples(c["train_batches"]));
    accelerator.prepare(loader);
    for (const char* pass : {"first", "second_epoch"}) {
        std::vector<bool> sync;
        for (auto& batch : loader) {
            static_cast<void>(batch);
            auto scope = accelerator.accumulate();
            sync.push_back(accelerator.sync_gradients());
            if (sync.size() == c[pass].size()) break;
        }
        EXPECT_EQ(sync, c[pass].get<std::vector<bool>>()) << pass;
    }
}

TEST(Accumulation, EveryAccumulateOnTheLastBatchSyncs) {
    const auto c = sync_case("two_accumulate_per_batch");
    Accelerator accelerator({.gradient_accumulation_steps = c["num_steps"]});
    data::DataLoader loader(samples(c["train_batches"]));
    accelerator.prepare(loader);
    std::vector<std::vector<bool>> sync;
    for (auto& batch : loader) {
        static_cast<void>(batch);
        sync.emplace_back();
        for (int k = 0; k < 2; ++k) {
            auto scope = accelerator.accumulate();
            sync.back().push_back(accelerator.sync_gradients());
        }
    }
    EXPECT_EQ(sync, c["sync"].get<std::vector<std::vector<bool>>>());
}

TEST(Accumulation, TheNumberOfStepsMayChangeBetweenMicroBatches) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    std::vector<bool> sync;
    for (int i = 0; i < 9; ++i) {
        if (i == 4) accelerator.set_gradient_accumulation_steps(3);
        auto scope = accelerator.accumulate();
        sync.push_back(accelerator.sync_gradients());
    }
    EXPECT_EQ(sync, sync_case("steps_2_then_3_at_i4")["sync"].get<std::vector<bool>>());
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
    tests::expect_error<ValueError>(
        {"Accelerator: gradient accumulation needs at least one step", "0"},
        [&] { accelerator.set_gradient_accumulation_steps(0); });
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
}

TEST(Accumulation, BackwardDividesTheLossByTheSteps) {
    Accelerator accelerator({.gradient_accumulation_steps = 4});
    Tensor w = ones({2}, {.dtype = f64, .requires_grad = true});
    accelerator.backward((w * 3.0).sum());
    accelerator.backward((w * 5.0).sum());
    EXPECT_EQ(w.grad().to_vector(), std::vector<double>({2, 2}));
}

// The regression of tests/golden/record_training.py.
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

void follow(const nlohmann::json& c) {
    SCOPED_TRACE(str(c["optimizer"], " steps ", c["num_steps"], " clip ", c["clip"].dump()));
    Accelerator accelerator({.gradient_accumulation_steps = c["num_steps"]});
    Line line;
    const auto adam_or_sgd = optimizer_named(c["optimizer"], line.parameters());
    optim::LambdaLR decay(*adam_or_sgd,
                          optim::LambdaLR::Factor([](auto k) { return 1 / (1 + 0.1 * k); }));
    data::DataLoader batches(line_samples(c["n"]), {.batch_size = c["batch_size"]});
    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(line, *adam_or_sgd, batches, decay);

    const auto close = [](double actual, const nlohmann::json& expected) {
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
            close(loss.item(), row["local_loss"][0]);
            close(model.a.item(), row["a"]);
            close(model.b.item(), row["b"]);
            close(scheduler.get_last_lr()[0], row["lr"]);
        }
    }
    EXPECT_EQ(i, c["trace"].size());
}

TEST(Accumulation, LossesWeightsAndRatesFollowAccelerate) {
    for (const char* name : {"vectors/training_trace.json", "golden/training.json"}) {
        const auto file = recorded(name);
        EXPECT_GE(file["cases"].size(), 3u);
        for (const auto& c : file["cases"]) follow(c);
    }
}

}  // namespace
}  // namespace axle
