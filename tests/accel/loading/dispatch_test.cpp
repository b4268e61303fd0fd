// Tests dispatched loaders: one process reads the batches for all ranks, and reports errors to
// them.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tree/tree_utils.h"
#include "tests/accel/loading/loaders.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::numbers;
using tests::on_ranks;
using tests::range;
using tests::Rows;
using tests::rows_of;
using Batches = std::vector<Rows>;
using Group = std::shared_ptr<dist::ProcessGroup>;

accel::PrepareDataLoaderOptions dispatched(bool split = false, accel::SliceFn slice = {}) {
    return {.config = {.split_batches = split, .dispatch_batches = true},
            .slice_fn_for_dispatch = std::move(slice)};
}

using tests::at;

// The batches of a pass, and the number of valid rows in each batch.
struct Pass {
    Batches batches;
    Rows valid;
};

Pass dispatched_pass(data::DataLoader& loader) {
    Pass pass;
    for (auto& batch : loader) {
        pass.batches.push_back(rows_of(batch));
        pass.valid.push_back(loader.valid_samples());
        EXPECT_EQ(loader.batch_samples(), std::ssize(pass.batches.back()));
    }
    return pass;
}

// Covers 4.DataLoaderDispatcher.
TEST(DispatchBatches, ReadsSamplesOnlyOnTheMainProcess) {
    std::atomic<int> reads[3] = {};
    on_ranks(3, [&](const Group& group) {
        data::DataLoader loader(data::from_function(12,
                                                    [&](std::int64_t i) {
                                                        ++reads[at(group)];
                                                        return Tree(i);
                                                    }),
                                {.batch_size = 2, .num_workers = 1});
        accel::prepare_data_loader(loader, group, dispatched());
        EXPECT_EQ(dispatched_pass(loader).batches.size(), 2U);
    });
    EXPECT_EQ(reads[0], 12);
    EXPECT_EQ(reads[1] + reads[2], 0);
}

// Covers 4.DataLoaderDispatcher.
TEST(DispatchBatches, DividesTheLastStepEvenlyBetweenRanks) {
    on_ranks(2, [](const Group& group) {
        data::DataLoader loader(numbers(11), {.batch_size = 3});
        accel::prepare_data_loader(loader, group, dispatched());
        const Pass pass = dispatched_pass(loader);
        const Batches expected[] = {{{0, 1, 2}, {6, 7, 8}}, {{3, 4, 5}, {9, 10, 0}}};
        const Rows valid[] = {{3, 3}, {3, 2}};
        EXPECT_EQ(pass.batches, expected[at(group)]);
        EXPECT_EQ(pass.valid, valid[at(group)]);
    });
}

TEST(DispatchBatches, DividesEachBatchAmongRanksWithSplitBatches) {
    on_ranks(2, [](const Group& group) {
        data::DataLoader loader(numbers(7), {.batch_size = 4});
        accel::prepare_data_loader(loader, group, dispatched(true));
        EXPECT_EQ(loader.total_batch_size(), 4);
        const Pass pass = dispatched_pass(loader);
        const Batches expected[] = {{{0, 1}, {4, 5}}, {{2, 3}, {6, 0}}};
        EXPECT_EQ(pass.batches, expected[at(group)]);
    });
}

// Covers 4.slice_fn_for_dispatch.
TEST(DispatchBatches, SplitsBatchesWithTheGivenSliceFunction) {
    on_ranks(2, [](const Group& group) {
        data::DataLoader loader(numbers(8), {.batch_size = 2});
        std::vector<int> asked;
        const auto every_other = [&](const Tree& batch, accel::RowRange slice, int index,
                                     int count) {
            EXPECT_EQ(slice.begin, 2 * index);
            EXPECT_EQ(slice.end, 2 * index + 2);
            asked.push_back(index);
            Rows rows;
            for (std::int64_t i = index; i < batch.tensor().size(0); i += count)
                rows.push_back(rows_of(batch)[static_cast<std::size_t>(i)]);
            return Tree(tensor({static_cast<double>(rows[0]), static_cast<double>(rows[1])}, {2}));
        };
        accel::prepare_data_loader(loader, group, dispatched(false, every_other));
        const Pass pass = dispatched_pass(loader);
        const Batches expected[] = {{{0, 2}, {4, 6}}, {{1, 3}, {5, 7}}};
        EXPECT_EQ(pass.batches, expected[at(group)]);
        EXPECT_EQ(asked, group->rank() == 0 ? (std::vector{0, 1, 0, 1}) : std::vector<int>());
    });
}

// A batch sampler whose batches have the given numbers of rows.
class Ragged : public data::BatchSampler {
  public:
    explicit Ragged(Rows sizes, bool drop_last = false)
        : sizes_(std::move(sizes)), drop_last_(drop_last) {}
    std::int64_t size() const override { return std::ssize(sizes_); }
    data::BatchOrder order(std::int64_t) const override {
        return [this](std::int64_t i) {
            const auto first = sizes_.begin();
            const std::int64_t begin = std::accumulate(first, first + i, std::int64_t{0});
            return range(begin, begin + sizes_[static_cast<std::size_t>(i)]);
        };
    }
    bool drop_last() const override { return drop_last_; }

  private:
    Rows sizes_;
    bool drop_last_;
};

// Covers 30.15.
TEST(DispatchBatches, AcceptsBatchesOfDifferentSizes) {
    for (const bool drop_last : {false, true})
        on_ranks(2, [&](const Group& group) {
            data::DataLoader loader(numbers(9), {.batch_sampler = std::make_shared<Ragged>(
                                                     Rows{1, 2, 4, 2}, drop_last)});
            accel::prepare_data_loader(loader, group, dispatched());
            const Batches expected[] = {{{0, 1}, {3, 4, 5}}, {{2, 0}, {6, 7, 8}}};
            EXPECT_EQ(dispatched_pass(loader).batches, expected[at(group)]);
        });
}

// Returns a dataset in which sample i has `width(i)` numbers.
data::FunctionDataset wide(std::int64_t n, std::int64_t (*width)(std::int64_t)) {
    return data::from_function(n, [width](std::int64_t i) {
        return Tree{{"x", full({width(i)}, static_cast<double>(i))}};
    });
}

// Covers 4.DataLoaderDispatcher.
TEST(DispatchBatches, ReportsIncompatibleBatchesOnAllRanks) {
    on_ranks(3, [](const Group& group) {
        const auto rows = wide(12, [](std::int64_t i) { return i < 8 ? std::int64_t{3} : 4; });
        data::DataLoader loader(rows, {.batch_size = 2});
        accel::prepare_data_loader(loader, group, dispatched());
        // Checks that the loader and the group can be used after the error.
        for (int again = 0; again < 2; ++again) {
            int steps = 0;
            expect_error<ShapeError>(
                {"dispatch_batches: ", "the batches of a step can't be put together",
                 "split_batches or dispatch_batches = false", "3", "4"},
                [&] {
                    for ([[maybe_unused]] auto& batch : loader) ++steps;
                });
            EXPECT_EQ(steps, 1);
        }
        EXPECT_EQ(loader.epoch(), 0);
        group->barrier();
    });
}

TEST(DispatchBatches, ThrowsDatasetErrorsOfTheSameTypeOnAllRanks) {
    on_ranks(2, [](const Group& group) {
        const auto fails = [&](auto raise, auto check) {
            data::DataLoader loader(data::from_function(8,
                                                        [&](std::int64_t i) -> Tree {
                                                            if (i == 5) raise();
                                                            return i;
                                                        }),
                                    {.batch_size = 2});
            accel::prepare_data_loader(loader, group, dispatched());
            check([&] { dispatched_pass(loader); });
        };
        const bool main = group->rank() == 0;
        const char* begin = main ? "DataLoader: batch 2: sample 5: "
                                 : "dispatch_batches: process 0, which reads for process 1: "
                                   "DataLoader: batch 2: sample 5: ";
        fails([] { throw FileError("a.png: truncated"); },
              [&](auto run) {
                  expect_error<FileError>({begin, "a.png: truncated"}, run);
              });
        fails([] { throw ValueError("no label"); },
              [&](auto run) {
                  expect_error<ValueError>({begin, "no label"}, run);
              });
        fails([] { throw std::runtime_error("the user's own"); },
              [&](auto run) {
                  expect_error<Error>({begin, "the user's own"}, run);
              });
        group->barrier();
    });
}

// With drop_last, the loader reads one step ahead of the step that it yields.
TEST(DispatchBatches, YieldsCompleteStepsBeforeThrowingADatasetError) {
    on_ranks(2, [](const Group& group) {
        for (const bool drop_last : {false, true}) {
            data::DataLoader loader(data::from_function(12,
                                                        [](std::int64_t i) -> Tree {
                                                            if (i == 5) throw ValueError("broken");
                                                            return i;
                                                        }),
                                    {.batch_size = 2, .drop_last = drop_last});
            accel::prepare_data_loader(loader, group, dispatched());
            for (int again = 0; again < 2; ++again) {
                Batches batches;
                const char* const reader =
                    group->rank() == 0
                        ? "DataLoader: "
                        : "dispatch_batches: process 0, which reads for process 1: DataLoader: ";
                expect_error<ValueError>({reader, "sample 5: broken"}, [&] {
                    for (auto& batch : loader) {
                        EXPECT_FALSE(loader.end_of_dataloader());
                        batches.push_back(rows_of(batch));
                    }
                });
                EXPECT_EQ(batches, group->rank() == 0 ? (Batches{{0, 1}}) : (Batches{{2, 3}}));
            }
            group->barrier();
        }
    });
}

// Covers 4.DataLoaderDispatcher.
TEST(DispatchBatches, FillsTheLastStepFromTheFirstNonemptyStep) {
    on_ranks(2, [](const Group& group) {
        // The collate function makes batches 0 and 1 empty.
        const auto keep = [](std::span<const Tree> samples) {
            Rows kept;
            for (const Tree& sample : samples)
                if (sample.integer() >= 4) kept.push_back(sample.integer());
            const Tensor all = arange(100);
            return Tree(kept.empty() ? all.narrow(0, 0, 0)
                                     : all.narrow(0, kept.front(), std::ssize(kept)));
        };
        for (const std::int64_t skipped : {0, 1, 2}) {
            data::DataLoader loader(numbers(11), {.batch_size = 2, .collate_fn = keep});
            accel::prepare_data_loader(loader, group, dispatched());
            loader.skip_first_batches(skipped);
            Batches expected =
                group->rank() == 0 ? (Batches{{}, {4, 5}, {8, 9}}) : (Batches{{}, {6, 7}, {10, 4}});
            expected.erase(expected.begin(), expected.begin() + skipped);
            EXPECT_EQ(dispatched_pass(loader).batches, expected) << skipped;
        }
    });
}

// Covers 4.DataLoaderDispatcher.
TEST(DispatchBatches, YieldsNoStepsIfDropLastDropsAllSamples) {
    on_ranks(3, [](const Group& group) {
        for (const bool iterable : {false, true})
            for (const bool sized : {false, true}) {
                const auto loader = tests::loader_of_numbers(
                    5, iterable, {.batch_size = 2, .drop_last = true}, sized);
                accel::prepare_data_loader(*loader, group, dispatched());
                EXPECT_TRUE(dispatched_pass(*loader).batches.empty());
                EXPECT_EQ(loader->epoch(), 0);
            }
    });
}

}  // namespace
}  // namespace axle
