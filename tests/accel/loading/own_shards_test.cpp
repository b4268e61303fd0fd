// Tests prepared loaders whose processes read their own shards. Every row is read once, except rows
// that drop_last drops. All ranks have the same number of steps, unless even_batches is false. A
// pass that is resumed from a checkpoint continues exactly after the saved step.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/accel/loading/loaders.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using tests::on_ranks;
using tests::range;
using tests::Rows;
using tests::rows_of;
using Sizes = std::vector<std::int64_t>;
using Log = std::vector<Rows>;  // one element per step
using Group = std::shared_ptr<dist::ProcessGroup>;

// Returns a dataset of the rows 1000 * epoch + i, in shards of the given sizes.
data::ShardedDataset shards_of(const Sizes& sizes, bool sized = true) {
    std::vector<std::shared_ptr<const data::IterableDataset>> shards;
    std::int64_t first = 0;
    for (const std::int64_t n : sizes) {
        shards.push_back(std::make_shared<data::GeneratorDataset>(
            [first, n](std::int64_t epoch) {
                return [at = first, end = first + n, epoch]() mutable -> std::optional<Tree> {
                    if (at == end) return std::nullopt;
                    return Tree(1000 * epoch + at++);
                };
            },
            sized ? std::optional(n) : std::nullopt));
        first += n;
    }
    return data::from_shards(std::move(shards));
}

struct Case {
    Sizes sizes = {};
    std::int64_t batch_size = 1;
    int workers = 0;
    bool sized = true, drop_last = false;

    std::string text() const {
        return str(testing::PrintToString(sizes), " by ", batch_size, ", ", workers, " workers",
                   sized ? "" : ", unsized", drop_last ? ", drop_last" : "");
    }
};

// The prepared loader of a process.
struct Program {
    Program(const Case& c, const Group& group, bool even = true)
        : accelerator(
              {.cpu = true,
               .dataloader_config =
                   accel::DataLoaderConfiguration{.dispatch_batches = false, .even_batches = even},
               .process_group = group}),
          loader(shards_of(c.sizes, c.sized), {.batch_size = c.batch_size,
                                               .num_workers = c.workers,
                                               .drop_last = c.drop_last,
                                               .allow_empty = true}) {
        accelerator.prepare(loader);
    }
    // Runs one pass and calls in_step() in each step. Returns the rows of all processes by step.
    // If all processes must have the same number of steps, expects full batches and the right
    // remainder().
    template <class F>
    Log pass(F&& in_step) {
        Log log;
        for (auto& batch : loader) {
            log.push_back(rows_of(accelerator.gather_for_metrics(batch)));
            if (loader.needs_even_steps()) {
                EXPECT_EQ(batch.tensor().size(0), loader.batch_size());
                const bool last = loader.end_of_dataloader();
                EXPECT_EQ(loader.remainder(), last ? std::ssize(log.back()) : -1);
            }
            in_step();
        }
        return log;
    }
    Log pass() {
        return pass([] {});
    }

    Accelerator accelerator;
    data::DataLoader loader;
};

Rows sorted_rows(const Log& log) {
    Rows all;
    for (const Rows& step : log) all.insert(all.end(), step.begin(), step.end());
    std::sort(all.begin(), all.end());
    return all;
}

Case drawn(std::mt19937& engine, int processes) {
    const auto below = [&](unsigned end) { return static_cast<std::int64_t>(engine() % end); };
    Case c{.batch_size = 1 + below(4),
           .workers = static_cast<int>(below(3)),
           .sized = below(2) == 1,
           .drop_last = below(3) == 0};
    const std::int64_t shards = processes + below(4);
    for (std::int64_t i = 0; i < shards; ++i) c.sizes.push_back(below(3) == 0 ? 0 : below(10));
    return c;
}

class DatasetShards : public testing::TestWithParam<int> {};

// Covers 4.HF, 4.set_epoch.
TEST_P(DatasetShards, YieldRowsOnceAndTheSameNumberOfStepsOnAllRanks) {
    on_ranks(GetParam(), [](const Group& group) {
        std::mt19937 engine(static_cast<unsigned>(group->size()));
        for (int i = 0; i < 40; ++i) {
            const Case c = drawn(engine, group->size());
            SCOPED_TRACE(str(c.text(), ", rank ", group->rank(), " of ", group->size()));
            Program program(c, group);
            EXPECT_EQ(program.loader.needs_even_steps(), group->size() > 1);
            const std::int64_t n = std::accumulate(c.sizes.begin(), c.sizes.end(), std::int64_t{0});
            const Log first = program.pass();
            if (c.sized) {
                EXPECT_EQ(std::ssize(first), program.loader.len());
                EXPECT_EQ(program.loader.total_dataset_length(), n);
            }
            const Rows rows = sorted_rows(first);
            if (c.drop_last) {
                EXPECT_EQ(std::ssize(rows), std::ssize(first) * program.loader.total_batch_size());
                EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
            } else {
                EXPECT_EQ(rows, range(0, n));
            }
            program.loader.set_epoch(7);
            Log later = program.pass();
            for (Rows& step : later)
                for (std::int64_t& row : step) row -= 7000;
            EXPECT_EQ(later, first);
            // All ranks must have the same number of steps.
            for (const Tree& steps : group->all_gather_object(std::ssize(first)))
                EXPECT_EQ(steps.integer(), std::ssize(first));
        }
    });
}

TEST_P(DatasetShards, AreEachReadByExactlyOneProcess) {
    std::vector<std::atomic<int>> readers(8);
    on_ranks(GetParam(), [&](const Group& group) {
        std::vector<std::shared_ptr<const data::IterableDataset>> shards;
        for (std::size_t shard = 0; shard < readers.size(); ++shard)
            shards.push_back(std::make_shared<data::GeneratorDataset>([&, shard](std::int64_t) {
                ++readers[shard];
                return [] { return std::optional<Tree>(); };
            }));
        data::DataLoader loader(data::from_shards(std::move(shards)), {});
        accel::prepare_data_loader(loader, group, {.config = {.dispatch_batches = false}});
        for ([[maybe_unused]] auto& batch : loader) ADD_FAILURE();
    });
    for (const auto& count : readers) EXPECT_EQ(count, 1);
}

// This test resumes after every step with the same number of processes.
TEST_P(DatasetShards, ResumeWithTheNextRowsAfterEveryStep) {
    on_ranks(GetParam(), [](const Group& group) {
        for (const int workers : {0, 2})
            for (const bool drop_last : {false, true}) {
                const Case c{.sizes = {5, 0, 9, 4, 0},
                             .batch_size = 2,
                             .workers = workers,
                             .sized = workers == 0,
                             .drop_last = drop_last};
                std::vector<Tree> states;
                Program whole(c, group);
                const Log log = whole.pass([&] { states.push_back(whole.loader.state_dict()); });
                for (std::size_t step = 0; step < states.size(); ++step) {
                    SCOPED_TRACE(str(c.text(), ", step ", step));
                    Program program(c, group);
                    program.loader.load_state_dict(states[step]);
                    const bool ended = step + 1 == states.size();
                    EXPECT_EQ(program.loader.epoch(), ended ? 1 : 0);
                    if (ended) continue;
                    EXPECT_EQ(program.pass(),
                              Log(log.begin() + static_cast<std::ptrdiff_t>(step) + 1, log.end()));
                    EXPECT_EQ(program.loader.epoch(), 1);
                }
            }
    });
}

INSTANTIATE_TEST_SUITE_P(Processes, DatasetShards, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

// Resumes a run of 4 processes on 2 processes after each step except the last. In the same way,
// resumes the first of these runs on 1 process.
TEST(ShardedDataset, ResumesWithTheNextRowsOnFewerProcesses) {
    const Sizes sizes = {5, 0, 9, 4, 0};
    std::vector<Tree> states, later_states;
    Log log;
    const auto run = [&](int processes, std::size_t step, std::vector<Tree>* saved) {
        on_ranks(processes, [&](const Group& group) {
            Program program({.sizes = sizes, .batch_size = 4 / processes}, group);
            if (step > 0) program.loader.load_state_dict(states[step - 1]);
            std::vector<Tree> own;
            const Log rows = program.pass([&] { own.push_back(program.loader.state_dict()); });
            if (group->rank() != 0) return;
            if (log.empty()) log = rows;
            EXPECT_EQ(rows, Log(log.begin() + static_cast<std::ptrdiff_t>(step), log.end()))
                << processes << " processes, step " << step;
            if (saved != nullptr) *saved = own;
        });
    };
    run(4, 0, &states);
    ASSERT_EQ(sorted_rows(log), range(0, 18));
    for (std::size_t step = 1; step < states.size(); ++step) run(2, step, &later_states);
    run(2, 1, &later_states);
    std::copy(later_states.begin(), later_states.end(), states.begin() + 1);
    for (std::size_t step = 2; step < states.size(); ++step) run(1, step, nullptr);
}

// Two processes begin the pass. Each of two later runs resumes after a step of the previous run.
TEST(ShardedDataset, ResumesARunOfTwoProcessesOnFourAndThenOnOneToEight) {
    const Sizes sizes = {11, 8, 5, 3};
    for (const bool drop_last : {false, true}) {
        Log log;
        const auto run = [&](int processes, const Tree& state, std::int64_t step) {
            std::vector<Tree> states;
            on_ranks(processes, [&](const Group& group) {
                Program program(
                    {.sizes = sizes, .batch_size = 8 / processes, .drop_last = drop_last}, group);
                if (!state.is_null()) program.loader.load_state_dict(state);
                std::vector<Tree> own;
                const Log rows = program.pass([&] { own.push_back(program.loader.state_dict()); });
                if (group->rank() != 0) return;
                if (log.empty()) log = rows;
                EXPECT_EQ(rows, Log(log.begin() + step, log.end()))
                    << processes << " processes, step " << step;
                states = own;
            });
            return states;
        };
        const std::vector<Tree> two = run(2, {}, 0);
        ASSERT_EQ(two.size(), drop_last ? 2u : 4u);
        for (std::int64_t step = 1; step < std::ssize(two); ++step) {
            const std::vector<Tree> four = run(4, two[static_cast<std::size_t>(step) - 1], step);
            for (std::int64_t later = step + 1; later < std::ssize(two); ++later)
                for (const int processes : {1, 2, 4, 8})
                    run(processes, four[static_cast<std::size_t>(later - step) - 1], later);
        }
    }
}

TEST(ShardedDataset, RepeatsRowsOnRanksThatHaveNoRowsLeft) {
    on_ranks(3, [](const Group& group) {
        Program program({.sizes = {0, 3, 1}, .batch_size = 2}, group);
        Log batches;
        Rows valid;
        for (auto& batch : program.loader) {
            batches.push_back(rows_of(batch));
            valid.push_back(program.loader.valid_samples());
        }
        const Log expected[] = {{{0, 1}, {2, 0}}, {{0, 1}, {2, 0}}, {{3, 3}, {2, 0}}};
        const Rows expected_valid[] = {{0, 0}, {2, 1}, {1, 0}};
        EXPECT_EQ(batches, expected[group->rank()]);
        EXPECT_EQ(valid, expected_valid[group->rank()]);
    });
}

TEST(ShardedDataset, AllowsDifferentNumbersOfStepsWithoutEvenBatches) {
    on_ranks(2, [](const Group& group) {
        for (const bool configured : {false, true}) {
            Program program({.sizes = {5, 2}, .batch_size = 2}, group, !configured);
            const auto scope = program.accelerator.join_uneven_inputs({}, false);
            Log batches;
            for (auto& batch : program.loader) batches.push_back(rows_of(batch));
            EXPECT_EQ(batches, group->rank() == 0 ? (Log{{0, 1}, {2, 3}, {4}}) : (Log{{5, 6}}));
        }
        group->barrier();
    });
}

TEST(ShardedDataset, EndsTheLoopsOfAllRanksOnAnError) {
    on_ranks(3, [](const Group& group) {
        const auto shard = [](std::int64_t i) {
            return std::make_shared<data::GeneratorDataset>([i](std::int64_t) {
                return [i, at = std::int64_t{0}]() mutable -> std::optional<Tree> {
                    if (i == 1 && at == 3) throw FileError("part-1.txt: truncated");
                    return Tree(at++);
                };
            });
        };
        data::DataLoader loader(data::from_shards({shard(0), shard(1), shard(2)}),
                                {.batch_size = 2, .num_workers = 1});
        accel::prepare_data_loader(loader, group, {.config = {.dispatch_batches = false}});
        int steps = 0;
        const char* whose =
            group->rank() == 1 ? "DataLoader: batch 1: " : "DataLoader: process 1: batch 1: ";
        tests::expect_error<FileError>({whose, "part-1.txt: truncated"}, [&] {
            for ([[maybe_unused]] auto& batch : loader) ++steps;
        });
        EXPECT_EQ(steps, 1);
        group->barrier();  // the group is still usable
    });
}

}  // namespace
}  // namespace axle
