// Tests loader states that are loaded after the dataset has grown or become smaller, and states
// with impossible values. If there are several processes, each is simulated by a loader on which
// shard() was called.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"
#include "tests/log_capture.h"

namespace axle::data {
namespace {

using testing::ElementsAre, testing::HasSubstr;
using tests::Batches, tests::expect_error, tests::Ids, tests::ids_of, tests::LogCapture,
    tests::Numbers, tests::pass, tests::sample;

constexpr std::int64_t kStep = 4;  // number of samples of all processes in a step
constexpr std::uint64_t kSeed = 5;

struct Kind {
    bool shuffle = true;
    bool split = false, drop_last = false, even = true;
    int workers = 0;
};

std::unique_ptr<DataLoader> loader_of(const Kind& kind, std::int64_t samples,
                                      std::int64_t processes = 1, std::int64_t rank = 0) {
    LoaderOptions options{.batch_size = kind.split ? kStep : kStep / processes,
                          .shuffle = kind.shuffle,
                          .num_workers = kind.workers,
                          .drop_last = kind.drop_last};
    options.seed = kSeed;
    auto loader = std::make_unique<DataLoader>(from_function(samples, sample), options);
    loader->set_epoch(2);
    if (processes > 1)
        loader->shard(ShardOptions{.num_processes = processes,
                                   .process_index = rank,
                                   .split_batches = kind.split,
                                   .even_batches = kind.even});
    return loader;
}

Tree copied(const Tree& state) { return from_json(to_json(state)); }

// One of several consecutive runs that together read a pass. Each run has its own dataset size and
// number of processes, and reads at most `steps` steps.
struct Run {
    std::int64_t samples, processes, steps;
};
constexpr std::int64_t kAll = 1000;

// Runs a pass of epoch 2 in several runs. Returns the steps of all processes without repeated
// samples, and the last state in `last` if it is not null.
Batches run_pass(const Kind& kind, const std::vector<Run>& runs, Tree* last = nullptr) {
    Batches steps;
    Tree state;
    for (const Run& run : runs) {
        const std::size_t first = steps.size();
        Tree next;
        for (std::int64_t rank = 0; rank < run.processes; ++rank) {
            const auto loader = loader_of(kind, run.samples, run.processes, rank);
            if (!state.is_null()) loader->load_state_dict(state);
            EXPECT_EQ(loader->epoch(), 2);
            std::size_t step = first;
            for (auto& batch : *loader) {
                steps.resize(std::max(steps.size(), step + 1));
                const Ids ids = ids_of(batch);
                steps[step].insert(steps[step].end(), ids.begin(),
                                   ids.begin() + loader->valid_samples());
                if (rank == 0) next = copied(loader->state_dict());
                if (++step == first + static_cast<std::size_t>(run.steps)) break;
            }
        }
        state = next;
    }
    if (last != nullptr) *last = state;
    return steps;
}

Ids order_of(bool shuffle, std::int64_t samples, std::int64_t epoch = 2) {
    if (shuffle) return RandomSampler(samples, {.seed = kSeed}).indices(epoch);
    return SequentialSampler(samples).indices(epoch);
}

// Returns the steps that run_pass() must return. If the dataset size changes, the order of samples
// changes too. A run reads its order without the samples that earlier runs have read.
Batches expected_pass(const Kind& kind, const std::vector<Run>& runs) {
    Ids read;
    for (const Run& run : runs) {
        const auto before = std::ssize(read);
        for (const std::int64_t index : order_of(kind.shuffle, run.samples)) {
            if (run.steps != kAll && std::ssize(read) == before + run.steps * kStep) break;
            if (std::find(read.begin(), read.begin() + before, index) == read.begin() + before)
                read.push_back(index);
        }
    }
    if (kind.drop_last) read.resize(read.size() - read.size() % kStep);
    Batches steps;
    for (auto at = read.begin(); at < read.end(); at += std::min(kStep, read.end() - at))
        steps.emplace_back(at, at + std::min(kStep, read.end() - at));
    return steps;
}

const Kind kKinds[] = {{},
                       {.shuffle = false},
                       {.split = true},
                       {.drop_last = true},
                       {.even = false},
                       {.shuffle = false, .split = true, .even = false},
                       {.workers = 2}};

void expect_exact(const Kind& kind, const std::vector<Run>& runs) {
    const Batches steps = run_pass(kind, runs);
    EXPECT_EQ(steps, expected_pass(kind, runs));
    Ids all;
    for (const Ids& step : steps) all.insert(all.end(), step.begin(), step.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
    const std::int64_t n = runs.back().samples;
    EXPECT_EQ(std::ssize(all), kind.drop_last ? n - n % kStep : n);
}

TEST(GrownDataset, IsReadExactlyOnceInAResumedPass) {
    const LogCapture log;
    for (const Kind& kind : kKinds)
        for (std::int64_t first = 1; first <= (kind.drop_last ? 2 : 3); ++first)
            for (const std::int64_t samples : {14, 16, 21, 60})
                expect_exact(kind, {{13, 1, first}, {samples, 1, kAll}});
}

TEST(GrownDataset, CanGrowAgainAndBeResumedOnAnotherNumberOfProcesses) {
    const LogCapture log;
    for (const Kind& kind : kKinds)
        for (const Ids& processes : {Ids{1, 2, 4, 1}, Ids{2, 1, 2, 4}, Ids{4, 2, 4, 2}})
            for (const Ids& samples :
                 {Ids{13, 18, 18, 23}, Ids{13, 13, 19, 19}, Ids{13, 15, 17, 40}})
                expect_exact(kind, {{samples[0], processes[0], 1},
                                    {samples[1], processes[1], 1},
                                    {samples[2], processes[2], 1},
                                    {samples[3], processes[3], kAll}});
}

TEST(GrownDataset, LosesNoSampleIfALoadedStateIsSavedBeforeABatchIsRead) {
    const LogCapture log;
    Tree state;
    run_pass({}, {{13, 1, 1}}, &state);
    for (const std::int64_t samples : {18, 18, 23}) {
        const auto loader = loader_of({}, samples);
        loader->load_state_dict(state);
        state = copied(loader->state_dict());
        EXPECT_EQ(state["grown"].size(), 1u);
    }
    const auto loader = loader_of({}, 23);
    loader->load_state_dict(state);
    Batches expected = expected_pass({}, {{13, 1, 1}, {23, 1, kAll}});
    expected.erase(expected.begin());
    EXPECT_EQ(loader->len(), 6);
    EXPECT_EQ(pass(*loader), expected);
    EXPECT_EQ(loader->state_dict().find("grown"), nullptr);
}

TEST(GrownDataset, IsReadInItsOwnOrderInTheNextPass) {
    const LogCapture log;
    Tree state;
    run_pass({}, {{13, 1, 2}}, &state);
    for (const bool leaves_early : {false, true}) {
        const auto loader = loader_of({}, 18);
        loader->load_state_dict(state);
        if (leaves_early) {
            for ([[maybe_unused]] auto& batch : *loader) break;
        } else {
            pass(*loader);
        }
        EXPECT_EQ(loader->epoch(), leaves_early ? 2 : 3);
        Ids all;
        for (const Ids& batch : pass(*loader)) all.insert(all.end(), batch.begin(), batch.end());
        EXPECT_EQ(all, order_of(true, 18, leaves_early ? 2 : 3));
    }
}

TEST(GrownDataset, KeepsItsResumedOrderUnlessBatchesAreSkipped) {
    const LogCapture log;
    Tree state;
    run_pass({}, {{13, 1, 1}}, &state);
    Batches expected = expected_pass({}, {{13, 1, 1}, {18, 1, kAll}});
    expected.erase(expected.begin());
    const auto loader = loader_of({}, 18);
    loader->load_state_dict(state);
    DataLoader moved(std::move(*loader));
    moved.shard(std::nullopt);
    EXPECT_EQ(pass(moved), expected);
    moved.load_state_dict(state);
    moved.skip_first_batches(1);
    const Ids order = order_of(true, 18);
    EXPECT_EQ(pass(moved).front(), Ids(order.begin() + kStep, order.begin() + 2 * kStep));
}

// The first samples of the pass fill the last step, although an earlier run has read them.
TEST(GrownDataset, FillsTheLastStepWithTheFirstSamplesOfThePass) {
    const LogCapture log;
    Tree state;
    run_pass({}, {{13, 2, 2}}, &state);
    const auto loader = loader_of({}, 18, 2, 1);
    loader->load_state_dict(state);
    const Batches batches = pass(*loader);
    const Ids order = order_of(true, 13);
    EXPECT_EQ(batches.back(), Ids(order.begin(), order.begin() + 2));
}

TEST(GrownDataset, IsReportedOnceByTheFirstProcess) {
    Tree within, between;
    run_pass({}, {{13, 1, 2}}, &within);
    run_pass({}, {{13, 1, kAll}}, &between);
    LogCapture log;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const auto loader = loader_of({}, 18, 2, rank);
        loader->load_state_dict(within);
        loader->load_state_dict(loader->state_dict());
        loader->load_state_dict(between);
        EXPECT_EQ(loader->epoch(), 3);
    }
    EXPECT_THAT(
        log.lines(),
        ElementsAre("DataLoader: load_state_dict: the dataset has grown from 13 to 18 samples "
                    "during epoch 2: 8 samples were read before, and the other 10 follow in the "
                    "order of the larger dataset",
                    "DataLoader: load_state_dict: the dataset has grown from 13 to 18 samples: the "
                    "next pass reads all of them"));
}

TEST(GrownDataset, IsReadCompletelyAfterACompletePass) {
    const LogCapture log;
    for (const bool skips : {false, true}) {
        DataLoader before(from_function(8, sample), {.batch_size = 2, .shuffle = true, .seed = 3});
        if (skips)  // the state is at the end of the pass, but the pass has not ended
            before.skip_first_batches(4);
        else
            pass(before);
        DataLoader larger(from_function(12, sample), {.batch_size = 2, .shuffle = true, .seed = 9});
        larger.load_state_dict(before.state_dict());
        EXPECT_EQ(larger.epoch(), 1);
        EXPECT_EQ(pass(larger).size(), 6u);
    }
}

TEST(GrownDataset, IsRejectedWithinAPassOfUnknownOrderUnlessThePassRestarts) {
    const LogCapture log;
    const auto expect_rejected = [](const auto& before, const auto& after, const Tree& changes,
                                    const LoaderOptions& options, const char* why) {
        DataLoader saved(before, options);
        Tree state;
        for ([[maybe_unused]] auto& batch : saved) {
            state = saved.state_dict();
            break;
        }
        for (const auto& [key, value] : changes.entries()) state.set(key, value);
        for (const bool restarts : {false, true}) {
            LoaderOptions own = options;
            own.restart_if_resized = restarts;
            DataLoader loader(after, own);
            if (!restarts) {
                expect_error<ValueError>({"DataLoader: load_state_dict: ", why,
                                          "restart_if_resized", "start the pass again"},
                                         [&] { loader.load_state_dict(state); });
            } else {
                loader.load_state_dict(state);
            }
            EXPECT_EQ(loader.position(), 0);
            EXPECT_EQ(loader.epoch(), 0);
        }
    };
    expect_rejected(Numbers(10), Numbers(12), Tree::map(), {.batch_size = 2},
                    "an iterable dataset may only grow between two passes");
    expect_rejected(from_function(10, sample), from_function(12, sample), Tree{{"num_samples", 8}},
                    {.batch_size = 2, .sampler = std::make_shared<SubsetSampler>(Ids(10, 1))},
                    "the sampler does not support growth within a pass");
    expect_rejected(from_function(10, sample), from_function(10, sample), Tree{{"num_samples", 8}},
                    {.batch_size = 2,
                     .sampler = std::make_shared<RandomSampler>(
                         10, RandomSamplerOptions{.seed = 1, .replacement = true})},
                    "the sampler does not support growth within a pass");
}

TEST(SmallerDataset, IsRejectedUnlessRestartIfResizedIsTrue) {
    Tree within, between;
    run_pass({}, {{13, 1, 2}}, &within);
    run_pass({}, {{13, 1, kAll}}, &between);
    const auto strict = loader_of({}, 12);
    expect_error<ValueError>(
        {"DataLoader: load_state_dict: ", "saved 13 in the middle of a pass, this loader has 12",
         "a dataset may only grow", "restart_if_resized"},
        [&] { strict->load_state_dict(within); });
    expect_error<ValueError>(
        {"DataLoader: load_state_dict: ", "saved 13 between two passes, this loader has 12",
         "a dataset may only grow", "restart_if_resized"},
        [&] { strict->load_state_dict(between); });
    LogCapture log;
    DataLoader loader(from_function(6, sample),
                      {.batch_size = kStep, .shuffle = true, .restart_if_resized = true});
    loader.load_state_dict(within);
    EXPECT_EQ(loader.epoch(), 2);
    EXPECT_EQ(loader.generator()->initial_seed(), kSeed);
    EXPECT_EQ(pass(loader).size(), 2u);
    loader.load_state_dict(between);
    EXPECT_EQ(loader.epoch(), 3);
    EXPECT_EQ(pass(loader).size(), 2u);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("epoch 2 starts again from its first batch"),
                                         HasSubstr("has 6 samples; the state has 13")));
}

TEST(LoaderState, IsRejectedIfItsValuesAreImpossible) {
    const LogCapture log;
    Tree grown;
    run_pass({}, {{13, 1, 1}, {18, 1, 1}, {23, 1, 1}}, &grown);
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max(), kMin = -kMax - 1;
    const auto growths = [](std::initializer_list<Growth> all) {
        Tree list = Tree::list();
        for (const Growth& growth : all)
            list.push_back(Tree{{"num_samples", growth.size}, {"read", growth.at}});
        return list;
    };
    ASSERT_EQ(to_json(grown["grown"]), to_json(growths({{13, 4}, {18, 8}})));
    const auto expect_rejected = [&](const char* key, const Tree& value) {
        for (const std::int64_t samples : {23, 30}) {
            Tree state = grown;
            state.set(key, value);
            const auto loader = loader_of({}, samples);
            EXPECT_THROW(loader->load_state_dict(state), ValueError)
                << key << " = " << to_json(value) << ", " << samples << " samples";
            EXPECT_EQ(loader->position(), 0);
            EXPECT_EQ(loader->epoch(), 2);
        }
    };
    for (const std::int64_t value : {kMin, std::int64_t{-1}, kMax}) {
        expect_rejected("epoch", value);
        expect_rejected("position", value);
        expect_rejected("num_samples", value);
        expect_rejected("total_batch_size", value);
        if (value < 0) expect_rejected("num_processes", value);
        expect_rejected("parts", value);
    }
    expect_rejected("position", kMax / kStep);
    expect_rejected("position", 7);
    expect_rejected("position", "3");
    expect_rejected("num_samples", 18);
    expect_rejected("num_samples", 8);
    for (const auto& wrong :
         {growths({{0, 0}}), growths({{13, 0}}), growths({{13, -4}}), growths({{-13, 4}}),
          growths({{kMax, 4}}), growths({{13, kMax}}), growths({{kMin, kMin}}), growths({{23, 4}}),
          growths({{3, 4}}), growths({{4, 4}}), growths({{13, 5}}), growths({{18, 16}}),
          growths({{18, 8}, {13, 4}}), growths({{13, 4}, {18, 4}}), growths({{13, 4}, {13, 8}}),
          growths({{13, 8}, {18, 4}})})
        expect_rejected("grown", wrong);
    expect_rejected("grown", 3);
    expect_rejected("grown", Tree::list({Tree(3)}));
    Tree many = Tree::list();
    for (std::int64_t i = 1; i < 2000; ++i)
        many.push_back(Tree{{"num_samples", 10 * i}, {"read", i}});
    Tree state = loader_of({}, 30000)->state_dict();
    DataLoader loader(from_function(30000, sample), {.batch_size = 1, .shuffle = true});
    state.set("num_samples", 30000);
    state.set("total_batch_size", 1);
    state.set("position", 2500);
    state.set("grown", many);
    expect_error<ValueError>(
        {"DataLoader: load_state_dict: the dataset has grown 1999 times in one pass; at most 1000"},
        [&] { loader.load_state_dict(state); });
}

}  // namespace
}  // namespace axle::data
