// Compares training on several processes with training on one process. Also tests checkpoints,
// metrics and uneven batches of several processes.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accel/accelerator.h"
#include "accel/metrics.h"
#include "core/random.h"
#include "core/system/numerics.h"
#include "data/files/tokens.h"
#include "dist/group/process_group.h"
#include "nlohmann/json.hpp"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/job.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Job;
using tests::RankOutcome;

struct Recipe {
    DType dtype = f32;
    bool sgd = false;
    std::int64_t steps = 20, batch = 12, accumulation = 1;
    bool deterministic = false;
    double dropout = 0;
};

struct Course {
    std::vector<double> losses;  // mean over all processes
    std::vector<double> parameters;
};

std::vector<std::int64_t> some_text(std::int64_t n) {
    std::vector<std::int64_t> ids;
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < n; ++i) {
        state = state * 1664525 + 1013904223;
        ids.push_back((i % 7) * 3 + static_cast<std::int64_t>(state >> 30));
    }
    return ids;
}

Course course_of(const std::shared_ptr<dist::ProcessGroup>& group, const Recipe& recipe) {
    use_deterministic_algorithms(recipe.deterministic);
    manual_seed(5);
    const std::int64_t processes = group->size();
    const std::int64_t batch = recipe.batch / processes / recipe.accumulation;
    nn::Gpt gpt({.vocab_size = 24,
                 .block_size = 16,
                 .n_layer = 2,
                 .n_head = 2,
                 .n_embd = 32,
                 .bias = false});
    gpt.to(recipe.dtype);
    Accelerator accelerator({.gradient_accumulation_steps = static_cast<int>(recipe.accumulation),
                             .cpu = true,
                             .gradient_accumulation_plugin = {},
                             .scheduler_steps = accel::SchedulerSteps::per_update,
                             .process_group = group});
    const std::vector<std::int64_t> text = some_text(500);
    data::DataLoader train(
        data::RandomBlockDataset(data::Tokens(std::span<const std::int64_t>(text)), 16,
                                 recipe.steps * recipe.batch, 3),
        {.batch_size = batch});
    std::unique_ptr<optim::Optimizer> optimizer;
    if (recipe.sgd)
        optimizer = std::make_unique<optim::SGD>(gpt.parameters(), optim::SGDOptions{.lr = 0.1});
    else
        optimizer =
            std::make_unique<optim::AdamW>(gpt.parameters(), optim::AdamWOptions{.lr = 1e-3});
    auto cosine = optim::get_cosine_schedule_with_warmup(*optimizer, 2, recipe.steps);
    accelerator.prepare(gpt, *optimizer, train, cosine);

    Course course;
    double total = 0;
    for (auto& rows : train) {
        auto scope = accelerator.accumulate(gpt);
        const Tensor loss = gpt.loss(rows["input_ids"], rows["labels"]);
        accelerator.backward(loss);
        const Tensor mean = loss.detach().to(f64);
        group->all_reduce(mean, dist::ReduceOp::mean);
        total += mean.item() / static_cast<double>(recipe.accumulation);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(gpt.parameters(), 1);
        optimizer->step();
        cosine.step();
        optimizer->zero_grad();
        if (accelerator.sync_gradients()) course.losses.push_back(std::exchange(total, 0));
    }
    for (const Tensor& p : gpt.parameters()) {
        const Tensor values = p.detach().to(f64).contiguous();
        const double* data = values.data<double>();
        course.parameters.insert(course.parameters.end(), data, data + values.numel());
    }
    return course;
}

// Runs the recipe and returns the result, which must be the same on all ranks. Throws if a rank
// fails or has another result.
Course course_on(int processes, const Recipe& recipe) {
    Job job(processes, [recipe](const dist::Environment& environment) {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        const Course course = course_of(group, recipe);
        return nlohmann::json{{"losses", course.losses}, {"parameters", course.parameters}}.dump();
    });
    const std::vector<RankOutcome> ended = job.wait(90s);
    for (const RankOutcome& rank : ended)
        if (!rank.reported || rank.text != ended[0].text || rank.text.starts_with("threw"))
            throw std::runtime_error("a rank differs or failed: " + rank.text.substr(0, 300));
    const auto result = nlohmann::json::parse(ended[0].text);
    return {result["losses"].get<std::vector<double>>(),
            result["parameters"].get<std::vector<double>>()};
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i], tolerance) << "at " << i;
}

class MultiProcessTraining : public testing::TestWithParam<int> {};

TEST_P(MultiProcessTraining, MatchesTrainingOnOneProcessInF64) {
    const Recipe recipe{.dtype = f64};
    const Course one = course_on(1, recipe), many = course_on(GetParam(), recipe);
    ASSERT_EQ(one.losses.size(), 20);
    EXPECT_LT(one.losses.back(), one.losses.front() - 0.3);
    expect_near(many.losses, one.losses, 1e-9);
    expect_near(many.parameters, one.parameters, 1e-9);
}

TEST_P(MultiProcessTraining, MatchesTheLossesOfOneProcessInF32) {
    const Recipe recipe{.sgd = true};
    expect_near(course_on(GetParam(), recipe).losses, course_on(1, recipe).losses, 1e-4);
}

TEST_P(MultiProcessTraining, MatchesTrainingOnOneProcessWithAccumulation) {
    const Recipe recipe{.dtype = f64, .steps = 6, .batch = 24, .accumulation = 2};
    const Course one = course_on(1, {.dtype = f64, .steps = 6, .batch = 24});
    expect_near(course_on(GetParam(), recipe).parameters, one.parameters, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Processes, MultiProcessTraining, testing::Values(2, 3, 4));

// The gradients of an update's micro-batches are added in the order of a binary tree. The order
// does not depend on the ranks that compute the micro-batches.
TEST(DeterministicTraining, IsIndependentOfTheNumberOfProcesses) {
    for (const std::int64_t micro_batches : {4, 8}) {
        const auto with = [&](int processes) {
            return course_on(processes, {.steps = 5,
                                         .batch = 16,
                                         .accumulation = micro_batches / processes,
                                         .deterministic = true});
        };
        const Course one = with(1);
        EXPECT_EQ(with(2).parameters, one.parameters);
        EXPECT_EQ(with(4).parameters, one.parameters);
    }
}

// The test saves after the first update, in the middle of a pass. Every rank has its own random
// state.
// Covers 23.saved.
TEST(Accelerator, ResumesFromACheckpointOnSeveralProcesses) {
    const tests::TemporaryFolder folder;
    const std::string path = folder.path() + "/checkpoint";
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        const auto seed = 20 + static_cast<std::uint64_t>(group->rank());
        std::vector<double> all;
        {
            tests::Training training(7, 0, true, group);
            manual_seed(seed);
            all = training.run(2, [&] {
                if (training.counter.batches == 2) training.accelerator.save_state(path);
            });
        }
        tests::Training resumed(99, 0, true, group);
        resumed.accelerator.load_state(path);
        const std::vector<double> rest = resumed.run(2);
        if (all.size() != 6) return str(all.size(), " batches");
        return std::equal(rest.begin(), rest.end(), all.begin() + 2, all.end()) ? "same" : "other";
    });
    for (const RankOutcome& rank : job.wait(60s)) EXPECT_EQ(rank.text, "same");
}

// The update uses the mean over the ranks that began it.
// Covers 30.13.
TEST(Accelerator, CompletesAnUpdateBegunByMoreOrFewerProcesses) {
    for (const int begun_by : {1, 4}) {
        const tests::TemporaryFolder folder;
        const std::string path = folder.path() + "/checkpoint";
        const auto updated = [&](const dist::Environment& environment) -> std::string {
            Accelerator accelerator(
                {.gradient_accumulation_steps = 2,
                 .cpu = true,
                 .process_group = dist::ProcessGroup::create(environment, {.join_timeout = 30s})});
            manual_seed(3);
            nn::Linear model(4, 1);
            model.to(f64);
            optim::SGD sgd(model.parameters(), {.lr = 0.1});
            accelerator.prepare(model, sgd);
            const auto micro_batch = [&](double x) {
                const auto scope = accelerator.accumulate(model);
                accelerator.backward(model(full({2, 4}, x, {f64})).pow(2).mean());
                sgd.step();
                sgd.zero_grad();
                return accelerator.sync_gradients();
            };
            if (accelerator.num_processes() == begun_by) {
                if (micro_batch(accelerator.process_index() + 1)) return "an update too early";
                accelerator.save_state(path);
            } else {
                accelerator.load_state(path);
            }
            if (!micro_batch(0.5)) return "no update";
            return nlohmann::json(model.weight.to_vector()).dump();
        };
        Job uninterrupted(begun_by, updated);
        const std::string text = uninterrupted.wait(60s)[0].text;
        const auto expected = nlohmann::json::parse(text).get<std::vector<double>>();
        Job resumed(2, updated);
        for (const RankOutcome& rank : resumed.wait(60s))
            expect_near(nlohmann::json::parse(rank.text).get<std::vector<double>>(), expected,
                        1e-12);
    }
}

TEST(PreparedModel, CanBeUsedAfterTheAcceleratorIsDestroyed) {
    Job job(2, [](const dist::Environment& environment) {
        tests::SmallNet net;
        {
            Accelerator accelerator(
                {.cpu = true,
                 .process_group = dist::ProcessGroup::create(environment, {.join_timeout = 30s})});
            accelerator.prepare(net);
        }
        return str(net(ones({3, 4})).shape());
    });
    for (const RankOutcome& rank : job.wait(60s)) EXPECT_EQ(rank.text, "[3, 1]");
}

// The test saves in the middle of an evaluation. Each rank has counted different samples.
TEST(Metric, ResumesWithTheCountsOfAllProcesses) {
    const tests::TemporaryFolder folder;
    const std::string path = folder.path() + "/checkpoint";
    const auto sums_after = [&](const dist::Environment& environment, bool saves) {
        Accelerator accelerator(
            {.cpu = true,
             .process_group = dist::ProcessGroup::create(environment, {.join_timeout = 30s})});
        accel::Mean mean(accelerator);
        accelerator.register_for_checkpointing(mean);
        if (saves) {
            mean.update(accelerator.process_index() + 1.0);
            accelerator.save_state(path);
        } else {
            accelerator.load_state(path);
        }
        return str(mean.compute());
    };
    for (const auto& [processes, saves] : {std::pair(2, true), {2, false}, {3, false}}) {
        Job job(processes,
                [&](const dist::Environment& place) { return sums_after(place, saves); });
        for (const RankOutcome& rank : job.wait(60s)) EXPECT_EQ(rank.text, "1.5") << processes;
    }
}

TEST(SaveState, ThrowsOnAllProcessesIfACheckpointCannotBeWritten) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        tests::Training training(7, 0, true, group);
        training.accelerator.save_state("/proc/nowhere/checkpoint");
        return "saved";
    });
    for (const RankOutcome& rank : job.wait(60s)) {
        EXPECT_THAT(rank.text, testing::StartsWith("threw: "));
        EXPECT_THAT(rank.text, testing::HasSubstr("/proc/nowhere"));
    }
}

// Returns "1" if two ranks have the same gradient of the first parameter, else "0".
std::string same_gradients(dist::ProcessGroup& group, const nn::Module& model) {
    const Tensor gradient = model.parameters()[0].grad();
    const Tensor all = group.all_gather(gradient);
    const Tensor difference = all.narrow(0, 0, 1) - all.narrow(0, 1, 1);
    return (difference * difference).sum().item() == 0 ? "1" : "0";
}

// Covers 3.no_sync, 3.trigger_sync_in_backward, 31.no_sync, 31.plain.
TEST(PreparedModel, AveragesGradientsUnlessSyncIsOff) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        Accelerator accelerator({.cpu = true, .process_group = group});
        tests::SmallNet net;
        accelerator.prepare(net);
        net.eval();
        const Tensor x = full({2, 4}, group->rank() + 1.0);
        const auto backward = [&] { net(x).sum().backward(); };
        std::string same;
        backward();
        same += same_gradients(*group, net);
        {
            const auto scope = accelerator.no_sync(net);
            net.zero_grad();
            backward();
            same += same_gradients(*group, net);
            const auto sync = accelerator.trigger_sync_in_backward(net);
            backward();
            same += same_gradients(*group, net);
        }
        {
            const auto scope = accelerator.no_sync();
            net.zero_grad();
            backward();
            same += same_gradients(*group, net);
        }
        backward();  // this call reduces the accumulated gradients
        same += same_gradients(*group, net);
        return same;
    });
    for (const RankOutcome& rank : job.wait(30s)) EXPECT_EQ(rank.text, "10101");
}

// The ranks have different random states.
TEST(StochasticRounding, GivesTheSameBitsOnAllProcesses) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        Accelerator accelerator({.cpu = true, .process_group = group});
        manual_seed(3);
        tests::SmallNet net;
        net.to(bf16);
        optim::AdamW adamw(net.parameters(), {.lr = 1e-3, .stochastic_rounding = true});
        manual_seed(100 + static_cast<std::uint64_t>(group->rank()));
        accelerator.prepare(net, adamw);
        net.eval();
        for (int step = 0; step < 5; ++step) {
            net(full({2, 4}, group->rank() + 1.0, {.dtype = bf16})).sum().backward();
            adamw.step();
            adamw.zero_grad();
        }
        const Tensor all = group->all_gather(net.parameters()[0].detach().to(f32));
        const Tensor difference = all.narrow(0, 0, 1) - all.narrow(0, 1, 1);
        return (difference * difference).sum().item() == 0 ? "same" : "other";
    });
    for (const RankOutcome& rank : job.wait(30s)) EXPECT_EQ(rank.text, "same");
}

// Covers 3.join_uneven_inputs.
TEST(JoinUnevenInputs, GivesRanksWithTwoAndOneBatchesTheSameWeights) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        Accelerator accelerator({.cpu = true, .process_group = group});
        tests::SmallNet net;
        const data::TensorDataset rows = tests::samples(3);
        data::DataLoader loader(rows, {.batch_size = 1});
        optim::SGD sgd(net.parameters(), {.lr = 0.1});
        accelerator.prepare(net, loader, sgd);
        std::string batches;
        const auto pass = [&] {
            int count = 0;
            for (auto& batch : loader) {
                tests::squared_error(net(batch["x"]), batch["y"]).backward();
                sgd.step();
                sgd.zero_grad();
                ++count;
            }
            batches += std::to_string(count);
        };
        {
            const auto scope = accelerator.join_uneven_inputs({&net}, false);
            pass();
        }
        pass();
        const Tensor all = group->all_gather(net.parameters()[0].detach());
        const Tensor difference = all.narrow(0, 0, 1) - all.narrow(0, 1, 1);
        return batches + ((difference * difference).sum().item() == 0 ? " same" : " other");
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "22 same");
    EXPECT_EQ(ended[1].text, "12 same");
}

}  // namespace
}  // namespace axle
