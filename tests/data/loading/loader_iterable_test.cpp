// Tests loaders of iterable datasets: batches, lengths, valid samples, skipped batches, threads,
// and errors of streams.
#include <atomic>
#include <stdexcept>

#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::ids_of, tests::Numbers, tests::pass, tests::sample;

constexpr int kWorkers[] = {0, 1, 4};

// Returns a dataset of the samples 0, 1, ..., 11. While `broken` is set, sample `bad` cannot be
// read.
GeneratorDataset broken_at(std::int64_t bad, const std::atomic<bool>& broken) {
    return from_generator([bad, &broken](std::int64_t) {
        return [i = std::int64_t{0}, bad, &broken]() mutable -> std::optional<Tree> {
            if (i == 12) return std::nullopt;
            if (i == bad && broken) throw FileError("shard.tar: truncated");
            return sample(i++);
        };
    });
}

TEST(IterableLoader, GivesSameBatchesForSeveralNumbersOfWorkers) {
    const Numbers numbers(11);
    for (const int workers : kWorkers) {
        DataLoader loader(numbers, {.batch_size = 4, .num_workers = workers});
        EXPECT_EQ(pass(loader), (Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}}));
        EXPECT_EQ(pass(loader),
                  (Batches{{100, 101, 102, 103}, {104, 105, 106, 107}, {108, 109, 110}}));
        EXPECT_EQ(loader.epoch(), 2);
        DataLoader dropping(numbers, {.batch_size = 4, .num_workers = workers, .drop_last = true});
        EXPECT_EQ(pass(dropping), (Batches{{0, 1, 2, 3}, {4, 5, 6, 7}}));
    }
}

TEST(IterableLoader, DetectsLastBatchEvenIfFull) {
    for (const bool sized : {false, true})
        for (const bool drop_last : {false, true})
            for (const int workers : kWorkers)
                for (const std::int64_t n : {1, 3, 4, 8, 9}) {
                    const Numbers numbers(n, {.sized = sized});
                    DataLoader loader(numbers, {.batch_size = 4,
                                                .num_workers = workers,
                                                .drop_last = drop_last,
                                                .allow_empty = true});
                    std::vector<bool> ends;
                    for ([[maybe_unused]] auto& batch : loader)
                        ends.push_back(loader.end_of_dataloader());
                    std::vector<bool> expected(
                        static_cast<std::size_t>(drop_last ? n / 4 : (n + 3) / 4));
                    if (!expected.empty()) expected.back() = true;
                    EXPECT_EQ(ends, expected) << n;
                    EXPECT_FALSE(loader.end_of_dataloader());
                    EXPECT_EQ(loader.epoch(), expected.empty() ? 0 : 1);
                }
}

// Covers 4.IterableDatasetShard.__len__.
TEST(IterableLoader, ReturnsLengthBatchSizesAndRemainder) {
    const Numbers numbers(22);
    DataLoader loader(numbers, {.batch_size = 4});
    EXPECT_EQ(loader.len(), 6);
    EXPECT_EQ(loader.total_dataset_length(), 22);
    EXPECT_EQ(loader.total_batch_size(), 4);
    EXPECT_EQ(loader.remainder(), -1);
    for ([[maybe_unused]] auto& batch : loader) EXPECT_EQ(loader.remainder(), 2);
    loader.shard(ShardOptions{.num_processes = 2});
    EXPECT_EQ(loader.len(), 3);
    EXPECT_EQ(loader.total_dataset_length(), 22);
    EXPECT_EQ(loader.batch_size(), 4);
    EXPECT_EQ(loader.total_batch_size(), 8);
    for ([[maybe_unused]] auto& batch : loader) EXPECT_EQ(loader.remainder(), 6);
    loader.shard(ShardOptions{.num_processes = 2, .split_batches = true});
    EXPECT_EQ(loader.len(), 6);
    EXPECT_EQ(loader.batch_size(), 2);
    EXPECT_EQ(loader.total_batch_size(), 4);
    for ([[maybe_unused]] auto& batch : loader) EXPECT_EQ(loader.remainder(), 2);
    DataLoader exact(numbers, {.batch_size = 11});
    for ([[maybe_unused]] auto& batch : exact) EXPECT_EQ(exact.remainder(), 0);
    DataLoader dropping(numbers, {.batch_size = 4, .drop_last = true});
    EXPECT_EQ(dropping.len(), 5);
    EXPECT_TRUE(dropping.drop_last());
    for ([[maybe_unused]] auto& batch : dropping) EXPECT_EQ(dropping.remainder(), -1);
}

TEST(IterableLoader, HasNoSamplerOrGeneratorAndThrowsForUnknownSizes) {
    const Numbers numbers(5, {.sized = false});
    DataLoader loader(numbers, {.batch_size = 2});
    EXPECT_THROW(loader.len(), UsageError);
    EXPECT_THROW(loader.total_dataset_length(), UsageError);
    EXPECT_THROW(skip_first_batches(loader, 1).len(), UsageError);
    for ([[maybe_unused]] auto& batch : loader) EXPECT_EQ(loader.remainder(), -1);
    EXPECT_EQ(loader.state_dict().find("num_samples"), nullptr);
    EXPECT_EQ(loader.dataset(), nullptr);
    EXPECT_EQ(loader.iterable_dataset(), &numbers);
    EXPECT_EQ(loader.batch_sampler(), nullptr);
    EXPECT_EQ(loader.generator(), nullptr);
}

TEST(IterableLoader, RejectsOptionsOfIndexedDatasetsAndInvalidArguments) {
    const Numbers numbers(5);
    const auto sampler = std::make_shared<SequentialSampler>(5);
    EXPECT_THROW(DataLoader(numbers, {.shuffle = true}), ValueError);
    EXPECT_THROW(DataLoader(numbers, {.sampler = sampler}), ValueError);
    EXPECT_THROW(DataLoader(numbers, {.batch_sampler =
                                          std::make_shared<FixedBatchSampler>(sampler, 1, false)}),
                 ValueError);
    EXPECT_THROW(DataLoader(numbers, {.batch_size = 0}), ValueError);
    EXPECT_THROW(DataLoader(std::shared_ptr<const IterableDataset>()), UsageError);
    DataLoader loader(numbers, {});
    EXPECT_THROW(loader.set_batch_sampler(std::make_shared<FixedBatchSampler>(sampler, 1, false)),
                 UsageError);
    EXPECT_THROW(loader.shard(ShardOptions{.num_processes = 2, .split_batches = true}), ValueError);
    EXPECT_EQ(pass(loader).size(), 5u);  // the loader has not changed
}

TEST(IterableLoader, SkipsWithoutReadingIfStreamCanSkip) {
    for (const int workers : kWorkers) {
        const Numbers skips(40, {.skips = true}), reads(40);
        DataLoader quick(skips, {.batch_size = 4, .num_workers = workers});
        DataLoader slow(reads, {.batch_size = 4, .num_workers = workers});
        quick.skip_first_batches(7);
        slow.skip_first_batches(7);
        EXPECT_EQ(pass(quick), pass(slow));
        EXPECT_EQ(skips.read(), 12);
        EXPECT_EQ(reads.read(), 40);
        quick.skip_first_batches(1000);
        EXPECT_EQ(pass(quick), Batches());
        EXPECT_EQ(skips.read(), 12);
        EXPECT_EQ(quick.epoch(), 2);
    }
}

TEST(IterableLoader, GivesEmptyPassAfterHugeSkip) {
    const Numbers numbers(10, {.sized = false, .skips = true});
    DataLoader loader(numbers, {.batch_size = 4});
    loader.shard(ShardOptions{.num_processes = 3});
    loader.skip_first_batches(std::int64_t{1} << 62);
    EXPECT_EQ(pass(loader), Batches());
    EXPECT_EQ(loader.epoch(), 1);
}

TEST(IterableLoader, ThrowsDatasetErrorAfterEarlierBatches) {
    for (const int workers : kWorkers)
        for (std::int64_t bad = 0; bad < 12; ++bad) {
            std::atomic<bool> broken = true;
            DataLoader loader(broken_at(bad, broken), {.batch_size = 5, .num_workers = workers});
            std::int64_t seen = 0;
            try {
                for ([[maybe_unused]] auto& batch : loader) {
                    ++seen;
                    EXPECT_FALSE(loader.end_of_dataloader());
                }
                ADD_FAILURE() << "no exception";
            } catch (const FileError& e) {
                EXPECT_EQ(std::string(e.what()),
                          str("DataLoader: batch ", bad / 5, ": sample ", bad % 5,
                              " of the batch: shard.tar: truncated"));
            }
            EXPECT_EQ(seen, bad / 5);
            EXPECT_EQ(loader.epoch(), 0);
            broken = false;
            EXPECT_EQ(pass(loader), (Batches{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11}}));
        }
}

TEST(IterableLoader, ReportsEpochInErrorsOfOpeningAndSkipping) {
    struct Closed : IterableDataset {
        std::unique_ptr<Stream> stream(std::int64_t epoch) const override {
            if (epoch == 1) throw FileError("shard.tar: not found");
            struct NoSkip : Stream {
                std::optional<Tree> next() override { return std::nullopt; }
                std::int64_t skip(std::int64_t) override {
                    throw std::runtime_error("cannot skip");
                }
            };
            return std::make_unique<NoSkip>();
        }
    };
    for (const int workers : kWorkers) {
        DataLoader loader(Closed(), {.num_workers = workers});
        loader.set_epoch(1);
        try {
            pass(loader);
            ADD_FAILURE() << "no exception";
        } catch (const FileError& e) {
            EXPECT_STREQ(e.what(), "DataLoader: stream of epoch 1: shard.tar: not found");
        }
        loader.set_epoch(2);
        loader.skip_first_batches(1);
        try {
            pass(loader);
            ADD_FAILURE() << "no exception";
        } catch (const Error& e) {
            EXPECT_STREQ(e.what(), "DataLoader: stream of epoch 2: cannot skip");
            EXPECT_THROW(std::rethrow_if_nested(e), std::runtime_error);
        }
        EXPECT_EQ(pass(loader), Batches());
    }
}

TEST(IterableLoader, ThrowsExceptionsOfCollateFnInLoop) {
    for (const int workers : kWorkers) {
        const Numbers numbers(9);
        DataLoader loader(numbers,
                          {.batch_size = 2,
                           .num_workers = workers,
                           .collate_fn = [](std::span<const Tree> samples) {
                               if (samples[0]["id"].integer() == 4) throw ShapeError("ragged");
                               return Tree{{"first", samples[0]["id"]}, {"n", samples.size()}};
                           }});
        std::vector<std::int64_t> first;
        try {
            for (auto& batch : loader) first.push_back(batch["first"].integer());
            ADD_FAILURE() << "no exception";
        } catch (const ShapeError& e) {
            EXPECT_STREQ(e.what(), "DataLoader: batch 2: ragged");
        }
        EXPECT_EQ(first, (tests::Ids{0, 2}));
        loader.set_epoch(1);
        first.clear();
        for (auto& batch : loader) first.push_back(batch["first"].integer());
        EXPECT_EQ(first, (tests::Ids{100, 102, 104, 106, 108}));
    }
}

TEST(IterableLoader, ReadsFullPassAfterIncompletePass) {
    for (const int workers : kWorkers)
        for (int leave_after = 1; leave_after <= 4; ++leave_after) {
            const Numbers numbers(16);
            DataLoader loader(numbers, {.batch_size = 4, .num_workers = workers});
            int seen = 0;
            for ([[maybe_unused]] auto& batch : loader)
                if (++seen == leave_after) break;
            EXPECT_EQ(loader.epoch(), 0);
            EXPECT_EQ(loader.position(), 0);
            EXPECT_EQ(pass(loader).size(), 4u);
        }
}

TEST(IterableLoader, CountsValidSamplesOfShare) {
    const Numbers numbers(10);
    const auto valid = [&](std::int64_t rank, int workers) {
        DataLoader loader(numbers, {.batch_size = 2, .num_workers = workers});
        loader.shard(ShardOptions{.num_processes = 4, .process_index = rank});
        std::vector<std::pair<tests::Ids, std::int64_t>> steps;
        for (auto& batch : loader) {
            EXPECT_EQ(loader.batch_samples(), 2);
            steps.emplace_back(ids_of(batch), loader.valid_samples());
        }
        EXPECT_EQ(loader.valid_samples(), 0);
        return steps;
    };
    using Steps = std::vector<std::pair<tests::Ids, std::int64_t>>;
    for (const int workers : kWorkers) {
        EXPECT_EQ(valid(0, workers), (Steps{{{0, 1}, 2}, {{8, 9}, 2}}));
        EXPECT_EQ(valid(1, workers), (Steps{{{2, 3}, 2}, {{0, 1}, 0}}));
        EXPECT_EQ(valid(2, workers), (Steps{{{4, 5}, 2}, {{2, 3}, 0}}));
        EXPECT_EQ(valid(3, workers), (Steps{{{6, 7}, 2}, {{4, 5}, 0}}));
    }
}

TEST(IterableLoader, UsesStreamFromOneThreadAtATime) {
    std::atomic<int> inside = 0;
    DataLoader loader(from_generator([&](std::int64_t) {
                          return [&inside, i = std::int64_t{0}]() mutable -> std::optional<Tree> {
                              EXPECT_EQ(++inside, 1);
                              const bool more = i < 500;
                              --inside;
                              return more ? std::optional(sample(i++)) : std::nullopt;
                          };
                      }),
                      {.batch_size = 3, .num_workers = 4});
    for (int epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(pass(loader).size(), 167u);
}

}  // namespace
}  // namespace axle::data
