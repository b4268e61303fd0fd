// Tests iterable datasets of several shards, and loaders that read the shards of one process.
#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::Ids, tests::ids_of, tests::Numbers, tests::NumbersOptions, tests::pass,
    tests::sample;

// Returns shards of the given sizes with consecutive ids. Each epoch adds 1000 to the ids.
ShardedDataset shards_of(const std::vector<std::int64_t>& sizes, bool sized = true) {
    std::vector<std::shared_ptr<const IterableDataset>> shards;
    std::int64_t first = 0;
    for (const std::int64_t n : sizes) {
        shards.push_back(std::make_shared<GeneratorDataset>(
            [first, n](std::int64_t epoch) {
                return [at = first, end = first + n, epoch]() mutable -> std::optional<Tree> {
                    if (at == end) return std::nullopt;
                    return sample(1000 * epoch + at++);
                };
            },
            sized ? std::optional(n) : std::nullopt));
        first += n;
    }
    return from_shards(std::move(shards));
}

Ids rest_of(Stream& stream) {
    Ids ids;
    while (const auto next = stream.next()) ids.push_back((*next)["id"].integer());
    EXPECT_FALSE(stream.next());
    return ids;
}

// Covers 4.HF.
TEST(ShardedDataset, ReadsShardsInOrderAndRejectsNullShardsAndInvalidIndices) {
    const ShardedDataset whole = shards_of({2, 0, 3});
    EXPECT_EQ(whole.num_shards(), 3);
    EXPECT_EQ(whole.size(), 5);
    EXPECT_EQ(rest_of(*whole.stream(0)), (Ids{0, 1, 2, 3, 4}));
    EXPECT_EQ(rest_of(*whole.stream(1)), (Ids{1000, 1001, 1002, 1003, 1004}));
    EXPECT_EQ(rest_of(*whole.shard(2, 0)->stream(0)), (Ids{0, 1, 2, 3, 4}));
    EXPECT_EQ(rest_of(*whole.shard(2, 1)->stream(0)), Ids());
    EXPECT_EQ(rest_of(*whole.shard(3, 2)->stream(0)), (Ids{2, 3, 4}));
    EXPECT_FALSE(shards_of({1}, false).size());
    EXPECT_EQ(from_shards({}).size(), 0);
    EXPECT_THROW(from_shards({nullptr}), UsageError);
    EXPECT_THROW(whole.shard(2, 2), IndexError);
}

TEST(ShardedDataset, SkipsAcrossShards) {
    const ShardedDataset whole = shards_of({2, 0, 3, 1});
    for (std::int64_t read = 0; read <= 6; ++read)
        for (std::int64_t skip = 0; skip <= 8; ++skip) {
            const auto stream = whole.stream(0);
            for (std::int64_t i = 0; i < read; ++i) stream->next();
            EXPECT_EQ(stream->skip(skip), std::min(skip, 6 - read));
            Ids expected;
            for (std::int64_t i = read + skip; i < 6; ++i) expected.push_back(i);
            EXPECT_EQ(rest_of(*stream), expected) << read << " read, " << skip << " skipped";
        }
}

TEST(DatasetShards, AreEachReadByOneProcess) {
    const ShardedDataset whole = shards_of({5, 3, 4});
    for (const int workers : {0, 2}) {
        DataLoader loader(whole, {.batch_size = 2, .num_workers = workers});
        EXPECT_FALSE(loader.reads_own_shards());
        loader.shard(ShardOptions{.num_processes = 2, .process_index = 0});
        EXPECT_TRUE(loader.needs_even_steps());
        EXPECT_EQ(loader.len(), 5);
        EXPECT_EQ(pass(loader), (Batches{{0, 1}, {2, 3}, {4, 8}, {9, 10}, {11, 0}}));
        loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
        EXPECT_EQ(loader.len(), 5);
        EXPECT_EQ(loader.total_dataset_length(), 12);
        EXPECT_EQ(pass(loader), (Batches{{1005, 1006}, {1007, 1005}}));
    }
}

TEST(DatasetShards, DoNotCountRepeatedRowsAsValid) {
    const ShardedDataset whole = shards_of({1, 3});
    DataLoader loader(whole, {.batch_size = 4});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 0});
    for (auto& batch : loader) {
        EXPECT_EQ(ids_of(batch), (Ids{0, 0, 0, 0}));
        EXPECT_EQ(loader.valid_samples(), 1);
        EXPECT_TRUE(loader.end_of_dataloader());
        EXPECT_EQ(loader.remainder(), -1);
    }
}

TEST(DatasetShards, AreNotPaddedWithoutEvenBatches) {
    const ShardedDataset whole = shards_of({5, 3});
    for (const bool drop_last : {false, true}) {
        DataLoader loader(whole, {.batch_size = 2, .drop_last = drop_last});
        loader.shard(ShardOptions{.num_processes = 2, .process_index = 1, .even_batches = false});
        EXPECT_TRUE(loader.reads_own_shards());
        EXPECT_FALSE(loader.needs_even_steps());
        EXPECT_EQ(loader.len(), drop_last ? 1 : 2);
        EXPECT_EQ(pass(loader), drop_last ? (Batches{{5, 6}}) : (Batches{{5, 6}, {7}}));
    }
}

TEST(DatasetShards, AreNotUsedIfFewerThanProcessesOrIfBatchesAreSplit) {
    DataLoader few(shards_of({5, 3}), {.batch_size = 2});
    few.shard(ShardOptions{.num_processes = 3, .process_index = 1});
    EXPECT_FALSE(few.reads_own_shards());
    EXPECT_EQ(pass(few), (Batches{{2, 3}, {0, 1}}));
    DataLoader split(shards_of({5, 3}), {.batch_size = 2});
    split.shard(ShardOptions{.num_processes = 2, .process_index = 1, .split_batches = true});
    EXPECT_FALSE(split.reads_own_shards());
    EXPECT_EQ(pass(split), (Batches{{1}, {3}, {5}, {7}}));
}

TEST(DatasetShards, DetermineTheLengthOfALoaderIfTheirSizesAreKnown) {
    DataLoader loader(shards_of({5, 3}, false), {.batch_size = 2});
    loader.shard(ShardOptions{.num_processes = 2});
    EXPECT_THROW(loader.len(), UsageError);
    DataLoader dropping(shards_of({5, 3}), {.batch_size = 2, .drop_last = true});
    dropping.shard(ShardOptions{.num_processes = 2});
    EXPECT_EQ(dropping.len(), 1);  // the number of batches of the smaller shard
}

TEST(DatasetShards, SkipToSamePositionAsReading) {
    for (const bool drop_last : {false, true})
        for (const bool even : {false, true})
            for (std::int64_t rank = 0; rank < 2; ++rank) {
                DataLoader loader(shards_of({7, 4, 2}), {.batch_size = 2, .drop_last = drop_last});
                loader.shard(
                    ShardOptions{.num_processes = 2, .process_index = rank, .even_batches = even});
                const Batches all = pass(loader);
                for (std::int64_t skip = 0; skip <= loader.len(); ++skip) {
                    loader.set_epoch(0);
                    loader.skip_first_batches(skip);
                    const auto from = all.begin() + std::min(skip, std::ssize(all));
                    EXPECT_EQ(pass(loader), Batches(from, all.end())) << skip;
                }
            }
}

TEST(DatasetShards, ResumeWithFewerProcesses) {
    const ShardedDataset whole = shards_of({5, 3, 4, 2});
    DataLoader four(whole, {.batch_size = 1});
    four.shard(ShardOptions{.num_processes = 4, .process_index = 0});
    std::vector<Tree> states;
    for ([[maybe_unused]] auto& batch : four) states.push_back(four.state_dict());
    ASSERT_EQ(states.size(), 5u);
    DataLoader two(whole, {.batch_size = 2}), one(whole, {.batch_size = 4});
    two.shard(ShardOptions{.num_processes = 2, .process_index = 0});
    two.load_state_dict(states[1]);
    EXPECT_TRUE(two.needs_even_steps());
    EXPECT_EQ(pass(two), (Batches{{2, 7}, {3, 0}, {4, 0}}));
    EXPECT_EQ(two.epoch(), 1);
    // The next pass is divided between the new processes.
    EXPECT_EQ(pass(two).front(), (Ids{1000, 1001}));
    one.load_state_dict(states[1]);
    EXPECT_FALSE(one.needs_even_steps());
    Ids valid;
    Batches batches;
    for (auto& batch : one) {
        batches.push_back(ids_of(batch));
        valid.push_back(one.valid_samples());
    }
    EXPECT_EQ(batches, (Batches{{2, 7, 10, 0}, {3, 11, 0, 5}, {4, 0, 5, 8}}));
    EXPECT_EQ(valid, (Ids{3, 2, 1}));
    one.load_state_dict(states[4]);
    EXPECT_EQ(one.epoch(), 1);
    EXPECT_EQ(pass(one).front(), (Ids{1000, 1001, 1002, 1003}));
}

// The processes that read a shard together divide its rows in each step.
TEST(DatasetShards, ResumeWithMoreProcesses) {
    const auto resumed = [](const ShardedDataset& whole, bool drop_last, std::int64_t rank,
                            Ids& valid) {
        DataLoader two(whole, {.batch_size = 4, .drop_last = drop_last});
        two.shard(ShardOptions{.num_processes = 2, .process_index = 0});
        auto in_the_middle = two.begin();
        DataLoader four(whole, {.batch_size = 2, .drop_last = drop_last});
        four.shard(ShardOptions{.num_processes = 4, .process_index = rank});
        EXPECT_FALSE(four.reads_own_shards());  // there are fewer shards than processes
        four.load_state_dict(two.state_dict());
        EXPECT_TRUE(four.needs_even_steps());
        EXPECT_EQ(four.len(), drop_last ? 2 : 3);
        Batches batches;
        for (auto& batch : four) {
            batches.push_back(ids_of(batch));
            valid.push_back(four.valid_samples());
            EXPECT_EQ(four.state_dict()["parts"].integer(), 2);
        }
        return batches;
    };
    const Batches filled[] = {{{4, 5}, {8, 0}}, {{6, 7}, {1, 2}}, {{13, 9}}, {{10, 11}}};
    const Batches dropped[] = {{{4, 5}}, {{6, 7}}, {{13, 14}}, {{15, 16}}};
    const Ids expected_valid[] = {{2, 1}, {2, 0}, {1}, {0}};
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        Ids valid;
        EXPECT_EQ(resumed(shards_of({9, 5}), false, rank, valid), filled[at]) << "rank " << rank;
        EXPECT_EQ(valid, expected_valid[at]) << "rank " << rank;
        EXPECT_EQ(resumed(shards_of({9, 9}), true, rank, valid), dropped[at]) << "rank " << rank;
    }
}

TEST(DatasetShards, RejectResumingWithUnsuitableNumberOfProcesses) {
    const ShardedDataset whole = shards_of({6, 6, 6, 6});
    DataLoader two(whole, {.batch_size = 6});
    two.shard(ShardOptions{.num_processes = 2});
    auto in_the_middle = two.begin();
    const Tree state = two.state_dict();
    const auto expect_refused = [&](std::int64_t batch_size, std::int64_t processes,
                                    const ShardedDataset& dataset) {
        DataLoader loader(dataset, {.batch_size = batch_size});
        loader.shard(ShardOptions{.num_processes = processes});
        try {
            loader.load_state_dict(state);
            ADD_FAILURE() << "resumed with " << processes << " processes";
        } catch (const ValueError& error) {
            EXPECT_NE(std::string(error.what()).find("cannot resume within a pass over"),
                      std::string::npos)
                << error.what();
        }
        EXPECT_EQ(loader.position(), 0);
    };
    expect_refused(4, 3, whole);
    expect_refused(6, 2, shards_of({24}));
    // At the beginning of a pass, any number of processes is accepted.
    DataLoader four(whole, {.batch_size = 3});
    four.shard(ShardOptions{.num_processes = 4});
    four.load_state_dict(DataLoader(whole, {.batch_size = 12}).state_dict());
    EXPECT_TRUE(four.reads_own_shards());
}

TEST(DatasetShards, AreNotUsedToResumeAnUnshardedPass) {
    const ShardedDataset whole = shards_of({6, 6});
    DataLoader all(whole, {.batch_size = 4});
    auto in_the_middle = all.begin();
    DataLoader loader(whole, {.batch_size = 2});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    loader.load_state_dict(all.state_dict());
    EXPECT_EQ(pass(loader), (Batches{{6, 7}, {10, 11}}));
    EXPECT_EQ(pass(loader).size(), 3u);
    EXPECT_EQ(loader.epoch(), 2);
}

TEST(DatasetShards, ReportShardInErrors) {
    struct Promising : IterableDataset {
        std::unique_ptr<Stream> stream(std::int64_t) const override { return nullptr; }
        std::int64_t num_shards() const override { return 8; }
    };
    DataLoader loader(Promising(), {.batch_size = 2});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    try {
        pass(loader);
        ADD_FAILURE() << "no exception";
    } catch (const UsageError& error) {
        EXPECT_STREQ(
            error.what(),
            "DataLoader: shard 0 of 2: IterableDataset: cannot read shard 0 of 2: a dataset that "
            "overrides num_shards() must also override shard()");
    }
}

}  // namespace
}  // namespace axle::data
