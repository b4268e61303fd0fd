// Tests that a saved state resumes a pass exactly after any batch, on the same or another number of
// processes, and which states are rejected. Each process is simulated by a loader on which shard()
// was called.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::GivenBatches, tests::Ids, tests::ids_of, tests::Numbers, tests::pass,
    tests::sample;

constexpr std::int64_t kEpochs = 3;

struct Step {
    friend bool operator==(const Step&, const Step&) = default;
    friend void PrintTo(const Step& step, std::ostream* out) {
        *out << "epoch " << step.epoch << ": " << testing::PrintToString(step.ids) << ", "
             << step.valid << " valid" << (step.end ? ", the last" : "");
    }

    std::int64_t epoch;
    Ids ids;
    std::int64_t valid;
    bool end;
};
using Log = std::vector<Step>;

// Reads `steps` batches, or fewer if the last epoch ends earlier. Returns the loader's state. After
// `steps` batches, the state is taken in the body of the loop.
Tree continue_pass(DataLoader& loader, std::int64_t steps, Log& log) {
    if (steps == 0) return loader.state_dict();
    while (loader.epoch() < kEpochs)
        for (auto& batch : loader) {
            log.push_back({loader.epoch(), ids_of(batch), loader.valid_samples(),
                           loader.end_of_dataloader()});
            if (--steps == 0) return loader.state_dict();
        }
    return loader.state_dict();
}

// Returns the samples that all processes together read in each step, without repeated samples.
Batches joined(const std::vector<Log>& ranks) {
    Batches steps;
    for (const Log& log : ranks) {
        steps.resize(std::max(steps.size(), log.size()));
        for (std::size_t i = 0; i < log.size(); ++i)
            steps[i].insert(steps[i].end(), log[i].ids.begin(), log[i].ids.begin() + log[i].valid);
    }
    return steps;
}

enum class Kind { sequential, shuffled, iterable };
constexpr Kind kKinds[] = {Kind::sequential, Kind::shuffled, Kind::iterable};

// A simulated job that reads a dataset of 13 samples: 4 samples per step, in 4 steps per epoch.
class Job {
  public:
    Job(Kind kind, int workers, bool even = true) : kind_(kind), workers_(workers), even_(even) {}

    std::unique_ptr<DataLoader> loader(std::int64_t processes, std::int64_t rank) const {
        LoaderOptions options{.batch_size = 4 / processes, .num_workers = workers_};
        std::unique_ptr<DataLoader> made;
        if (kind_ == Kind::iterable) {
            made = std::make_unique<DataLoader>(numbers_, options);
        } else {
            options.shuffle = kind_ == Kind::shuffled;
            options.seed = 5;
            made = std::make_unique<DataLoader>(indexed_, options);
        }
        if (processes > 1)
            made->shard(ShardOptions{
                .num_processes = processes, .process_index = rank, .even_batches = even_});
        return made;
    }

    // Resumes all processes from the state, or starts them if it is null, and reads at most `steps`
    // batches on each. Returns the state of process 0.
    Tree run(std::int64_t processes, const Tree& state, std::int64_t steps,
             std::vector<Log>& logs) const {
        Tree after;
        logs.resize(static_cast<std::size_t>(processes));
        for (std::int64_t rank = 0; rank < processes; ++rank) {
            const auto own = loader(processes, rank);
            if (!state.is_null()) own->load_state_dict(state);
            Tree now = continue_pass(*own, steps, logs[static_cast<std::size_t>(rank)]);
            if (rank == 0) after = from_json(to_json(now));
        }
        return after;
    }

  private:
    Kind kind_;
    int workers_;
    bool even_;
    Numbers numbers_{13};
    FunctionDataset indexed_ = from_function(13, sample);
};

constexpr std::int64_t kAll = 1000;

// Covers 30.1.
TEST(LoaderState, ResumesExactlyAtEveryBatchOnOneAndSeveralProcesses) {
    for (const Kind kind : kKinds)
        for (const int workers : {0, 1, 4})
            for (const std::int64_t processes : {1, 2, 4}) {
                const Job job(kind, workers);
                std::vector<Log> whole;
                job.run(processes, {}, kAll, whole);
                ASSERT_EQ(whole[0].size(), 12u);
                for (std::int64_t stop = 0; stop <= 12; ++stop) {
                    std::vector<Log> logs;
                    const Tree state = job.run(processes, {}, stop, logs);
                    job.run(processes, state, kAll, logs);
                    ASSERT_EQ(logs, whole) << processes << " processes, " << workers
                                           << " workers, stopped after " << stop;
                }
            }
}

// Covers 4.state_dict.
TEST(LoaderState, ResumesExactlyAfterChangeToFewerProcesses) {
    for (const Kind kind : kKinds)
        for (const int workers : {0, 1, 4}) {
            const Job job(kind, workers);
            std::vector<Log> whole;
            job.run(1, {}, kAll, whole);
            const Batches expected = joined(whole);
            for (std::int64_t first = 0; first <= 12; ++first)
                for (const std::int64_t second : workers == 0 ? Ids{1, 4, 6} : Ids{4}) {
                    std::vector<Log> four, two, one;
                    Tree state = job.run(4, {}, first, four);
                    state = job.run(2, state, second, two);
                    job.run(1, state, kAll, one);
                    Batches steps = joined(four);
                    for (const auto& logs : {two, one}) {
                        const Batches more = joined(logs);
                        steps.insert(steps.end(), more.begin(), more.end());
                    }
                    ASSERT_EQ(steps, expected)
                        << workers << " workers, " << first << " steps, then " << second;
                }
        }
}

TEST(LoaderState, ResumesExactlyAfterSeveralChangesOfTheNumberOfProcesses) {
    for (const Kind kind : kKinds) {
        const Job job(kind, 0);
        std::vector<Log> whole;
        job.run(1, {}, kAll, whole);
        const Batches expected = joined(whole);
        for (const Ids& processes : {Ids{1, 2, 4}, Ids{2, 4, 1}, Ids{1, 4, 2}})
            for (std::int64_t first = 1; first <= 7; ++first)
                for (const std::int64_t second : {1, 2, 5}) {
                    const std::int64_t stops[] = {first, second, kAll};
                    Batches steps;
                    Tree state;
                    for (std::size_t i = 0; i < 3; ++i) {
                        std::vector<Log> logs;
                        state = job.run(processes[i], state, stops[i], logs);
                        const Batches more = joined(logs);
                        steps.insert(steps.end(), more.begin(), more.end());
                    }
                    ASSERT_EQ(steps, expected) << first << " steps, then " << second;
                }
    }
}

TEST(LoaderState, ResumesUnevenBatchesOnOneTwoOrFourProcesses) {
    for (const Kind kind : {Kind::sequential, Kind::shuffled})
        for (const std::int64_t before : {1, 2, 4})
            for (const std::int64_t after : {1, 2, 4})
                for (std::int64_t stop = 1; stop < 4; ++stop) {
                    const Job job(kind, 0, false);
                    Log log;
                    const Tree state = continue_pass(*job.loader(before, 0), stop, log);
                    Batches expected = pass(*job.loader(1, 0)), steps;
                    expected.erase(expected.begin(), expected.begin() + stop);
                    for (std::int64_t rank = 0; rank < after; ++rank) {
                        const auto own = job.loader(after, rank);
                        own->load_state_dict(state);
                        std::size_t step = 0;
                        for (const Ids& ids : pass(*own)) {
                            steps.resize(std::max(steps.size(), ++step));
                            steps[step - 1].insert(steps[step - 1].end(), ids.begin(), ids.end());
                        }
                    }
                    EXPECT_EQ(steps, expected) << before << " to " << after << " after " << stop;
                }
}

// With even_batches = false, some ranks have no batch in the last step of a pass. Their passes must
// not end before that step.
TEST(LoaderState, ResumesExactlyIfSomeProcessesHaveFewerBatches) {
    for (const std::int64_t processes : {2, 4}) {
        const Job job(Kind::shuffled, 0, false);
        std::vector<Log> whole;
        job.run(processes, {}, kAll, whole);
        ASSERT_EQ(whole[0].size(), 12u);
        ASSERT_EQ(whole.back().size(), 9u);
        for (std::int64_t stop = 0; stop <= 12; ++stop) {
            const auto first = job.loader(processes, 0);
            Log log;
            const Tree state = continue_pass(*first, stop, log);
            for (std::int64_t rank = 0; rank < processes; ++rank) {
                const auto own = job.loader(processes, rank);
                own->load_state_dict(state);
                const Log& all = whole[static_cast<std::size_t>(rank)];
                const std::int64_t seen = stop / 4 * (rank == 0 ? 4 : 3) +
                                          std::min<std::int64_t>(stop % 4, rank == 0 ? 4 : 3);
                log.clear();
                continue_pass(*own, kAll, log);
                EXPECT_EQ(log, Log(all.begin() + seen, all.end())) << rank << " after " << stop;
            }
        }
    }
}

TEST(LoaderState, IsUnfinishedIfAnotherProcessHasMoreBatches) {
    DataLoader loader(from_function(5, sample), {});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1, .even_batches = false});
    Tree state;
    for ([[maybe_unused]] auto& batch : loader) state = loader.state_dict();
    EXPECT_EQ(state["position"].integer(), 2);
    EXPECT_FALSE(state["finished"].boolean());
    loader.set_epoch(0);
    loader.load_state_dict(state);
    EXPECT_EQ(loader.epoch(), 0);
    EXPECT_EQ(pass(loader), Batches());
    EXPECT_EQ(loader.epoch(), 1);
}

TEST(LoaderState, RestoresTheSeed) {
    const FunctionDataset dataset = from_function(30, sample);
    DataLoader saved(dataset, {.batch_size = 4, .shuffle = true, .seed = 7});
    DataLoader other(dataset, {.batch_size = 4, .shuffle = true, .seed = 8});
    EXPECT_NE(pass(other), pass(saved));
    other.load_state_dict(saved.state_dict());
    EXPECT_EQ(other.generator()->initial_seed(), 7u);
    EXPECT_EQ(pass(other), pass(saved));
    // A state without a seed does not change the seed.
    DataLoader ordered(dataset, {.batch_size = 4});
    other.load_state_dict(ordered.state_dict());
    EXPECT_EQ(other.generator()->initial_seed(), 7u);
}

TEST(LoaderState, ResumesIterableDatasetsAtEveryBatch) {
    for (const bool sized : {false, true}) {
        const Numbers numbers(11, {.sized = sized});
        DataLoader whole(numbers, {.batch_size = 4});
        std::vector<Tree> states;
        for ([[maybe_unused]] auto& batch : whole) states.push_back(whole.state_dict());
        const auto rest = [&](const Tree& state) {
            DataLoader resumed(numbers, {.batch_size = 4});
            resumed.load_state_dict(state);
            return pass(resumed);
        };
        EXPECT_EQ(rest(states[0]), (Batches{{4, 5, 6, 7}, {8, 9, 10}}));
        EXPECT_EQ(rest(states[1]), (Batches{{8, 9, 10}}));
        EXPECT_EQ(rest(states[2]),
                  (Batches{{100, 101, 102, 103}, {104, 105, 106, 107}, {108, 109, 110}}));
    }
}

TEST(LoaderState, IncludesBatchesThatTheNextPassSkips) {
    DataLoader loader(from_function(6, sample), {.batch_size = 2});
    loader.skip_first_batches(2);
    DataLoader other(from_function(6, sample), {.batch_size = 2});
    other.load_state_dict(loader.state_dict());
    EXPECT_EQ(pass(other), Batches({{4, 5}}));
    loader.skip_first_batches(100);
    other.load_state_dict(loader.state_dict());
    EXPECT_EQ(other.epoch(), 1);
    EXPECT_EQ(pass(loader), Batches());
    EXPECT_EQ(loader.epoch(), 1);
}

// --- batches of varying sizes, and rejected states

Batches ragged_batches(std::int64_t n) {
    Batches batches;
    for (std::int64_t i = 0; i < n; ++i) batches.emplace_back(1 + i % 3, i);
    return batches;
}

class Ragged {
  public:
    std::unique_ptr<DataLoader> loader(std::int64_t processes, std::int64_t rank) const {
        auto made = std::make_unique<DataLoader>(
            dataset_,
            LoaderOptions{.batch_sampler = std::make_shared<GivenBatches>(ragged_batches(10))});
        if (processes > 1)
            made->shard(ShardOptions{.num_processes = processes, .process_index = rank});
        return made;
    }

  private:
    FunctionDataset dataset_ = from_function(10, sample);
};

TEST(LoaderState, ResumesOnFewerProcessesWhenBatchSizesVary) {
    const Ragged ragged;
    const Batches all = ragged_batches(10);
    const auto four = ragged.loader(4, 0);
    std::vector<Tree> states;
    for ([[maybe_unused]] auto& batch : *four) states.push_back(four->state_dict());
    ASSERT_EQ(states.size(), 3u);
    for (const std::int64_t done : {1, 2}) {
        const auto one = ragged.loader(1, 0);
        one->load_state_dict(states[static_cast<std::size_t>(done - 1)]);
        EXPECT_EQ(pass(*one), Batches(all.begin() + 4 * done, all.end()));
        for (std::int64_t rank = 0; rank < 2; ++rank) {
            const auto two = ragged.loader(2, rank);
            two->load_state_dict(states[static_cast<std::size_t>(done - 1)]);
            Batches own;
            for (std::int64_t i = 4 * done + rank; i < 10; i += 2)
                own.push_back(all[static_cast<std::size_t>(i)]);
            EXPECT_EQ(pass(*two), own);
        }
    }
    // The state of a finished pass can be loaded on any number of processes.
    for (const std::int64_t processes : {1, 2, 3, 4, 8}) {
        const auto loader = ragged.loader(processes, 0);
        loader->load_state_dict(states[2]);
        EXPECT_EQ(loader->epoch(), 1);
        EXPECT_EQ(loader->position(), 0);
    }
}

template <class Call>
std::string text_of(Call call) {
    try {
        call();
    } catch (const ValueError& error) {
        return error.what();
    }
    return "no ValueError";
}

TEST(LoaderState, RequiresPositionDivisibleByProcessesWhenBatchSizesVary) {
    const Ragged ragged;
    const auto one = ragged.loader(1, 0);
    Tree state;
    for ([[maybe_unused]] auto& batch : *one)
        if ((state = one->state_dict())["position"].integer() == 3) break;
    EXPECT_EQ(text_of([&] { ragged.loader(2, 0)->load_state_dict(state); }),
              "DataLoader: load_state_dict: the position must be a multiple of the number of "
              "processes if batch sizes vary: 3 batches, 2 processes");
    EXPECT_NO_THROW(ragged.loader(3, 0)->load_state_dict(state));
    state.set("position", std::numeric_limits<std::int64_t>::max());
    state.set("num_processes", 2);
    EXPECT_THAT(text_of([&] { one->load_state_dict(state); }),
                testing::HasSubstr("with 2 processes exceeds a pass of 10 batches"));
}

TEST(LoaderState, IsRejectedForASmallerDatasetOrAnotherTotalBatchSizeWithinAPass) {
    const FunctionDataset dataset = from_function(24, sample);
    const auto make = [&](std::int64_t batch_size, std::int64_t processes) {
        auto loader =
            std::make_unique<DataLoader>(dataset, LoaderOptions{.batch_size = batch_size});
        loader->shard(ShardOptions{.num_processes = processes});
        return loader;
    };
    const Tree state = make(2, 4)->state_dict();
    Tree within = state;
    within.set("position", 1);
    EXPECT_EQ(text_of([&] { make(3, 2)->load_state_dict(within); }),
              "DataLoader: load_state_dict: the total batch sizes differ: saved 8 with 4 "
              "processes, this loader has 6 with 2");
    EXPECT_NO_THROW(make(4, 2)->load_state_dict(state));
    EXPECT_NO_THROW(make(8, 1)->load_state_dict(state));
    DataLoader smaller(from_function(23, sample), {.batch_size = 8});
    EXPECT_EQ(text_of([&] { smaller.load_state_dict(state); }),
              "DataLoader: load_state_dict: the numbers of samples differ: saved 24 between two "
              "passes, this loader has 23; a dataset may only grow; set "
              "LoaderOptions::restart_if_resized to accept it");
    Tree far = state;
    far.set("position", 4);
    EXPECT_EQ(text_of([&] { make(2, 4)->load_state_dict(far); }),
              "DataLoader: load_state_dict: position 4 exceeds a pass of 3 batches");
    far.set("position", -1);
    EXPECT_EQ(text_of([&] { make(2, 4)->load_state_dict(far); }),
              "DataLoader: load_state_dict: the position must not be negative and num_processes "
              "must be positive: position -1, num_processes 4");
    const Numbers numbers(24);
    DataLoader iterable(numbers, {.batch_size = 8});
    EXPECT_NO_THROW(iterable.load_state_dict(state));
    const Numbers others(23);
    DataLoader refusing(others, {.batch_size = 8});
    EXPECT_THROW(refusing.load_state_dict(state), ValueError);
}

}  // namespace
}  // namespace axle::data
