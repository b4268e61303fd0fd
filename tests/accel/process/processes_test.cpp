// One model on several processes: the same training as on one.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accel/accelerator.h"
#include "accel/utils/logger.h"
#include "accel/utils/metrics.h"
#include "core/numerics.h"
#include "core/random.h"
#include "core/tree/tree_utils.h"
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
#include "tests/vectors.h"

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
    std::vector<double> losses;  // over all processes
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

// That of the first rank, after all have said that they have the same.
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
    const auto said = nlohmann::json::parse(ended[0].text);
    return {said["losses"].get<std::vector<double>>(),
            said["parameters"].get<std::vector<double>>()};
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i], tolerance) << "at " << i;
}

class Processes : public testing::TestWithParam<int> {};

TEST_P(Processes, TrainInF64AsOneDoes) {
    const Recipe recipe{.dtype = f64};
    const Course one = course_on(1, recipe), many = course_on(GetParam(), recipe);
    ASSERT_EQ(one.losses.size(), 20);
    EXPECT_LT(one.losses.back(), one.losses.front() - 0.3);
    expect_near(many.losses, one.losses, 1e-9);
    expect_near(many.parameters, one.parameters, 1e-9);
}

TEST_P(Processes, TrainInF32AsOneDoes) {
    const Recipe recipe{.sgd = true};
    expect_near(course_on(GetParam(), recipe).losses, course_on(1, recipe).losses, 1e-4);
}

TEST_P(Processes, AccumulateAsOneDoes) {
    const Recipe recipe{.dtype = f64, .steps = 6, .batch = 24, .accumulation = 2};
    const Course one = course_on(1, {.dtype = f64, .steps = 6, .batch = 24});
    expect_near(course_on(GetParam(), recipe).parameters, one.parameters, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(P, Processes, testing::Values(2, 3, 4));

// The gradient of an update is the sum of a tree over its micro-batches, whoever computes them.
TEST(ProcessesInDeterministicMode, GiveTheSameBitsHoweverMicroBatchesAreSharedOut) {
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

// In the middle of an accumulation, with random numbers of its own on each.
// Covers 23.saved.
TEST(ManyProcesses, ResumeWhereTheyWereSaved) {
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

// What those who began it had on average counts.
// Covers 30.13.
TEST(ManyProcesses, CompleteAnUpdateThatMoreOrFewerHaveBegun) {
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

TEST(ManyProcesses, LeaveAModelThatCanBeUsedWithoutThem) {
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

// In the middle of an evaluation, where each has counted something else.
TEST(ManyProcesses, ResumeAMetricWithWhatAllHaveCounted) {
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

TEST(ManyProcesses, FailTogetherWhereACheckpointCantBeWritten) {
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

// Covers 2.flag_tensor, 3.on_main_process, 3.set_trigger, 12.on_*, 30.19.
TEST(ManyProcesses, DoThingsInTurn) {
    Job job(3, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        Accelerator accelerator({.cpu = true, .process_group = group});
        std::string said;
        const std::vector<int> inputs = {0, 1, 2, 3};
        for (const int i : accelerator.split_between_processes(inputs)) said += str(i);
        said += '/';
        for (const int i : accelerator.split_between_processes(inputs, true)) said += str(i);
        accelerator.on_main_process([&] { said += "/main"; });
        if (accelerator.on_last_process([] { return 7; }) == 7) said += "/last";
        if (accelerator.process_index() == 1) accelerator.set_trigger();
        said += accelerator.check_trigger() ? "/stop" : "/go";
        said += accelerator.check_trigger() ? "/stop" : "/go";
        accelerator.wait_for_everyone();
        return said;
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "01/01/main/stop/go");
    EXPECT_EQ(ended[1].text, "2/23/stop/go");
    EXPECT_EQ(ended[2].text, "3/33/last/stop/go");
}

// Covers 3.main_process_first, 12.*_process_first.
TEST(ManyProcesses, LetTheMainOneGoFirst) {
    const tests::TemporaryFolder folder;
    const std::string path = folder.path() + "/made";
    Job job(3, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        const PartialState state({.cpu = true, .process_group = group});
        const auto first = state.main_process_first();
        if (state.is_main_process()) {
            std::this_thread::sleep_for(50ms);
            std::ofstream(path) << "made";
        }
        return std::ifstream(path).good() ? "there" : "missing";
    });
    for (const RankOutcome& rank : job.wait(30s)) EXPECT_EQ(rank.text, "there");
}

// Whether two ranks have the same gradients of a model, as 0 or 1.
std::string same_gradients(dist::ProcessGroup& group, const nn::Module& model) {
    const Tensor gradient = model.parameters()[0].grad();
    const Tensor all = group.all_gather(gradient);
    const Tensor difference = all.narrow(0, 0, 1) - all.narrow(0, 1, 1);
    return (difference * difference).sum().item() == 0 ? "1" : "0";
}

// Covers 3.no_sync, 3.trigger_sync_in_backward, 31.no_sync, 31.plain.
TEST(ManyProcesses, AverageGradientsWhereTheyAreToldTo) {
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
        backward();  // reduces what has been gathered
        same += same_gradients(*group, net);
        return same;
    });
    for (const RankOutcome& rank : job.wait(30s)) EXPECT_EQ(rank.text, "10101");
}

// With random numbers of their own.
TEST(ManyProcesses, RoundAlikeWhereTheyRoundStochastically) {
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
TEST(ManyProcesses, MayHaveDifferentNumbersOfBatches) {
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

// Covers 22.set_verbosity, 25.third-party.
TEST(ManyProcesses, HaveLogLevelsOfTheirOwn) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const PartialState state(
            {.cpu = true,
             .process_group = dist::ProcessGroup::create(environment, {.join_timeout = 30s})});
        testing::internal::CaptureStderr();
        set_log_level(state.is_local_main_process() ? LogLevel::warning : LogLevel::error);
        log(LogLevel::warning, "careful");
        log(LogLevel::error, "broken");
        return testing::internal::GetCapturedStderr();
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "axle: warning: careful\naxle: error: broken\n");
    EXPECT_EQ(ended[1].text, "axle: error: broken\n");
}

// What the log sink of a rank has heard, with '|' behind each line.
// Covers 22.MultiProcessAdapter.log, 22.warning_once, 22.set_verbosity.
TEST(ManyProcesses, LogAsTheirRanks) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        std::string heard;
        set_log_sink([&](LogLevel, std::string_view text) { heard += str(text, '|'); });
        const accel::Logger logger("train", LogLevel::info,
                                   PartialState({.cpu = true, .process_group = group}));
        logger.info("from the main one");
        logger.debug("from nobody", {.main_process_only = false});
        logger.error("from all", {.main_process_only = false});
        logger.warning("in turn", {.in_order = true});
        logger.warning_once("once");
        logger.warning_once("once");
        set_log_sink({});
        return heard;
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text,
              "[RANK 0] train: from the main one|[RANK 0] train: from all|"
              "[RANK 0] train: in turn|[RANK 0] train: once|");
    EXPECT_EQ(ended[1].text, "[RANK 1] train: from all|[RANK 1] train: in turn|");
}

// One tracker for the main process, one for all of them, as each says.
// Covers 11.on_main_process, 11.GeneralTracker.
TEST(ManyProcesses, TrackOnTheMainOneUnlessATrackerIsForAll) {
    struct Counter : accel::Tracker {
        explicit Counter(bool main_only_) : main_only(main_only_) {}
        std::string name() const override { return main_only ? "main" : "all"; }
        bool main_process_only() const override { return main_only; }
        void log(const Tree&, std::optional<std::int64_t>, const Tree&) override { ++logs; }
        bool main_only;
        int logs = 0;
    };
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
        const auto main = std::make_shared<Counter>(true), all = std::make_shared<Counter>(false);
        Accelerator accelerator({.cpu = true, .log_with = {main, all}, .process_group = group});
        accelerator.init_trackers("run");
        accelerator.log({{"loss", 1}}, 1);
        accelerator.end_training();
        return str(main->logs, all->logs);
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "11");
    EXPECT_EQ(ended[1].text, "01");
}

// Covers 22.get_logger, 22.MultiProcessAdapter.log, 27.ACCELERATE_DEBUG_MODE.
TEST(Logger, NeedsToKnowWhichProcessThisIs) {
    const accel::Logger early = accel::get_logger("train");
    EXPECT_THROW(early.debug("unheard"), UsageError);
    const PartialState state({.cpu = true});
    early.debug("unheard");
    EXPECT_EQ(accel::get_logger("train").level(), LogLevel::warning);
    setenv("ACCELERATE_LOG_LEVEL", "DEBUG", 1);
    EXPECT_EQ(accel::get_logger("train").level(), LogLevel::debug);
    EXPECT_EQ(accel::get_logger("train", LogLevel::error).level(), LogLevel::error);
    setenv("ACCELERATE_LOG_LEVEL", "loud", 1);
    EXPECT_THROW(accel::get_logger("train"), ValueError);
    unsetenv("ACCELERATE_LOG_LEVEL");
    EXPECT_EQ(accel::get_logger("train", accel::log_level("Critical")).level(), LogLevel::error);
    EXPECT_THROW(accel::log_level("loud"), ValueError);
    set_log_level(LogLevel::warning);
}

// Lists, tuples and tensors count from 0.
Tree inputs_of(const nlohmann::json& c) {
    if (c["kind"] == "dict") return from_json(c["input"].dump());
    const auto n = c["n"].get<std::int64_t>();
    if (c["kind"] == "tensor") return arange(n);
    Tree inputs = Tree::list();
    for (std::int64_t i = 0; i < n; ++i) inputs.push_back(i);
    return inputs;
}

// Covers 3.split_between_processes.
TEST(SplitBetweenProcesses, AgreesWithEveryVector) {
    const auto file = tests::vectors("split_between_processes.json");
    for (const auto& c : file["cases"]) {
        const Tree inputs = inputs_of(c);
        const auto processes = c["num_processes"].get<std::size_t>();
        const bool pads = c["apply_padding"];
        for (std::size_t rank = 0; rank < processes; ++rank) {
            const auto split = [&] {
                return accel::split_between_processes(inputs, static_cast<int>(rank),
                                                      static_cast<int>(processes), pads);
            };
            const nlohmann::json& out = c["out"].is_array() ? c["out"][rank] : c["out"];
            const bool fails = out.is_object() && out.contains("error");
            if (fails && c["kind"] == "dict") {
                EXPECT_THROW(split(), ValueError) << c;
                continue;
            }
            const auto part = nlohmann::json::parse(to_json(listify(split()), -1));
            // Upstream fails to pad nothing, and to pad a tuple (tests/vectors/README.md).
            if (!fails || !pads) {
                ASSERT_EQ(part, out) << c;
                continue;
            }
            const auto n = c["n"].get<std::size_t>();
            ASSERT_EQ(part.size(), (n + processes - 1) / processes) << c;
            if (rank + 1 == processes && n > 0) {
                EXPECT_EQ(part.back(), n - 1) << c;
            }
        }
    }
}

}  // namespace
}  // namespace axle
