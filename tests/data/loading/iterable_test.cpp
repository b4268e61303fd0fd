// Tests streams of iterable datasets and the samples that each process reads.
#include "data/loading/iterable.h"

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/data/samples.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::Ids, tests::Numbers, tests::sample;

// Reads the rest of a stream. A repeated sample i is returned as -i - 1.
Ids rest_of(Stream& stream) {
    Ids ids;
    while (const auto next = stream.next()) {
        const std::int64_t id = (*next)["id"].integer();
        ids.push_back(stream.repeated() ? -id - 1 : id);
    }
    EXPECT_FALSE(stream.next());
    return ids;
}

Ids read_all(const IterableDataset& dataset) {
    const auto stream = dataset.stream(0);
    Ids ids;
    while (const auto next = stream->next()) ids.push_back((*next)["id"].integer());
    return ids;
}

// Covers 4.IterableDatasetShard.
TEST(IterableDatasetShard, MatchesAccelerateExceptForDocumentedDifferences) {
    const auto file = tests::vectors("iterable_dataset_shard.json");
    for (const auto& c : file["cases"]) {
        const Numbers whole(c["n"].get<std::int64_t>());
        const auto batch_size = c["batch_size"].get<std::int64_t>();
        const auto drop_last = c["drop_last"].get<bool>();
        ShardOptions options{.num_processes = c["num_processes"].get<std::int64_t>(),
                             .split_batches = c["split_batches"].get<bool>()};
        const bool nothing_upstream =
            options.split_batches && batch_size == 1 && options.num_processes > 1;
        if (c.contains("error") || nothing_upstream) {
            EXPECT_THROW(IterableDatasetShard(whole, batch_size, drop_last, options), ValueError)
                << c;
            continue;
        }
        const bool other_len_upstream = options.split_batches && options.num_processes > 1;
        for (std::size_t rank = 0; rank < c["shards"].size(); ++rank) {
            options.process_index = static_cast<std::int64_t>(rank);
            const IterableDatasetShard shard(whole, batch_size, drop_last, options);
            ASSERT_EQ(read_all(shard), c["shards"][rank].get<Ids>()) << c;
            ASSERT_EQ(shard.size(), std::ssize(c["shards"][rank])) << c;
            if (!other_len_upstream) {
                ASSERT_EQ(shard.size(), c["len"][rank]) << c;
            }
        }
    }
}

TEST(IterableDatasetShard, RejectsInvalidArguments) {
    const Numbers whole(10);
    EXPECT_THROW(IterableDatasetShard(nullptr, 2, false, {}), UsageError);
    EXPECT_THROW(IterableDatasetShard(whole, 0, false, {}), ValueError);
    EXPECT_THROW(IterableDatasetShard(whole, 2, false, {.num_processes = 2, .process_index = 2}),
                 ValueError);
    EXPECT_THROW(IterableDatasetShard(whole, 3, false, {.num_processes = 2, .split_batches = true}),
                 ValueError);
}

TEST(IterableDatasetShard, MarksRepeatedSamples) {
    const Numbers whole(10);
    const auto rest = [&](std::int64_t rank) {
        const IterableDatasetShard shard(whole, 2, false,
                                         {.num_processes = 3, .process_index = rank});
        return rest_of(*shard.stream(0));
    };
    EXPECT_EQ(rest(0), (Ids{0, 1, 6, 7}));
    EXPECT_EQ(rest(1), (Ids{2, 3, 8, 9}));
    EXPECT_EQ(rest(2), (Ids{4, 5, -1, -2}));
}

// Covers 4.IterableDatasetShard.__len__.
TEST(IterableDatasetShard, HasNoSizeIfDatasetHasNone) {
    const Numbers whole(10, {.sized = false});
    EXPECT_FALSE(IterableDatasetShard(whole, 2, false, {.num_processes = 2}).size());
    EXPECT_EQ(read_all(IterableDatasetShard(whole, 2, false, {.num_processes = 2})),
              (Ids{0, 1, 4, 5, 8, 9}));
}

TEST(IterableDatasetShard, SkipsToSamePositionAsReading) {
    for (const bool skips : {false, true})
        for (const bool drop_last : {false, true})
            for (const std::int64_t n : {0, 1, 4, 6, 7, 11, 12, 13})
                for (std::int64_t rank = 0; rank < 3; ++rank) {
                    const Numbers whole(n, {.skips = skips});
                    const IterableDatasetShard shard(whole, 2, drop_last,
                                                     {.num_processes = 3, .process_index = rank});
                    const Ids all = rest_of(*shard.stream(0));
                    const std::int64_t size = std::ssize(all);
                    for (std::int64_t read = 0; read <= size; ++read)
                        for (std::int64_t skip = 0; skip <= size + 3; ++skip) {
                            const auto stream = shard.stream(0);
                            for (std::int64_t i = 0; i < read; ++i) stream->next();
                            EXPECT_EQ(stream->skip(skip), std::min(skip, size - read));
                            const std::int64_t at = std::min(read + skip, size);
                            EXPECT_EQ(rest_of(*stream), Ids(all.begin() + at, all.end()))
                                << n << " samples, rank " << rank << ", " << read << " read, "
                                << skip << " skipped";
                        }
                }
}

TEST(IterableDatasetShard, ReadsOnlyFirstStepAndOwnSamplesIfStreamCanSkip) {
    const Numbers whole(1000, {.skips = true});
    const IterableDatasetShard shard(whole, 2, false, {.num_processes = 4, .process_index = 2});
    const auto stream = shard.stream(0);
    EXPECT_EQ(stream->skip(100), 100);
    EXPECT_EQ(whole.read(), 8);
    EXPECT_EQ((*stream->next())["id"].integer(), 404);
    EXPECT_EQ(whole.read(), 10);
    EXPECT_EQ(rest_of(*stream).size(), 149u);
    EXPECT_EQ(whole.read(), 8 + 150);
}

// Covers 4.set_epoch.
TEST(GeneratorDataset, RestartsInEveryEpoch) {
    const auto squares = from_generator([](std::int64_t epoch) {
        return [i = std::int64_t{0}, epoch]() mutable -> std::optional<Tree> {
            if (i == 4) return std::nullopt;
            ++i;
            return sample(i * i + 100 * epoch);
        };
    });
    EXPECT_FALSE(squares.size());
    EXPECT_EQ(read_all(squares), (Ids{1, 4, 9, 16}));
    EXPECT_EQ(rest_of(*squares.stream(2)), (Ids{201, 204, 209, 216}));
    EXPECT_EQ(squares.generator(), nullptr);
}

TEST(GeneratorDataset, DoesNotCallItsFunctionAfterTheEnd) {
    const auto once = from_generator([](std::int64_t) {
        return [i = 0]() mutable -> std::optional<Tree> {
            if (++i > 3) throw FileError("read after the end");
            return i == 3 ? std::nullopt : std::optional(sample(i));
        };
    });
    EXPECT_EQ(rest_of(*once.stream(0)), (Ids{1, 2}));
    EXPECT_EQ(once.stream(0)->skip(5), 2);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const IterableDatasetShard shard(once, 2, false,
                                         {.num_processes = 2, .process_index = rank});
        EXPECT_EQ(read_all(shard), (Ids{1, 2}));
    }
}

TEST(GeneratorDataset, RejectsInvalidArgumentsAndCanBeEmpty) {
    EXPECT_THROW(from_generator(nullptr), UsageError);
    const auto nothing = [](std::int64_t) { return GeneratorDataset::Next(); };
    EXPECT_THROW(from_generator(nothing, -1), ValueError);
    EXPECT_EQ(from_generator(nothing, 0).size(), 0);
    EXPECT_EQ(read_all(from_generator(nothing)), Ids{});
}

}  // namespace
}  // namespace axle::data
