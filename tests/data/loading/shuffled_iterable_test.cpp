// Tests ShuffledIterable: orders, resuming, shards, loaders and errors.
#include "data/loading/shuffled_iterable.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "data/loading/composed_iterables.h"
#include "data/loading/loader.h"
#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using testing::UnorderedElementsAreArray;
using tests::Batches;
using tests::expect_error;
using tests::Ids;
using tests::Numbers;
using tests::pass;

Ids rest_of(Stream& stream) {
    Ids ids;
    while (const auto next = stream.next()) ids.push_back((*next)["id"].integer());
    EXPECT_FALSE(stream.next());
    return ids;
}

// Returns the ids of Numbers(n) in an epoch.
Ids numbers(std::int64_t n, std::int64_t epoch = 0) {
    Ids ids(static_cast<std::size_t>(n));
    std::iota(ids.begin(), ids.end(), 100 * epoch);
    return ids;
}

TEST(ShuffledIterable, VisitsEachSampleOnceInAnOrderOfTheEpochAndTheSeed) {
    const Numbers ten(10);
    const auto shuffled = shuffle(ten, {.buffer_size = 4, .seed = 1});
    EXPECT_EQ(shuffled.size(), 10);
    const Ids order = rest_of(*shuffled.stream(0));
    EXPECT_NE(order, numbers(10));
    EXPECT_THAT(order, UnorderedElementsAreArray(numbers(10)));
    EXPECT_EQ(rest_of(*shuffled.stream(0)), order);
    Ids next = rest_of(*shuffled.stream(1));
    EXPECT_THAT(next, UnorderedElementsAreArray(numbers(10, 1)));
    for (std::int64_t& id : next) id -= 100;
    EXPECT_NE(next, order);
    EXPECT_NE(rest_of(*shuffle(ten, {.buffer_size = 4, .seed = 5}).stream(0)), order);
}

TEST(ShuffledIterable, MovesSamplesForwardByLessThanTheBuffer) {
    const Numbers many(200);
    EXPECT_EQ(rest_of(*shuffle(many, {.buffer_size = 1}).stream(0)), numbers(200));
    const Ids order = rest_of(*shuffle(many, {.buffer_size = 8}).stream(0));
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < order.size(); ++i)
        largest = std::max(largest, order[i] - static_cast<std::int64_t>(i));
    EXPECT_EQ(largest, 7);
}

TEST(ShuffledIterable, ShufflesDatasetsThatAreSmallerThanTheBuffer) {
    const Numbers five(5), none(0);
    for (const std::int64_t buffer : {std::int64_t{6}, std::numeric_limits<std::int64_t>::max()}) {
        const auto shuffled = shuffle(five, {.buffer_size = buffer});
        const Ids order = rest_of(*shuffled.stream(0));
        EXPECT_NE(order, numbers(5));
        EXPECT_THAT(order, UnorderedElementsAreArray(numbers(5)));
        const auto stream = shuffled.stream(0);
        EXPECT_EQ(stream->skip(2), 2);
        EXPECT_EQ(rest_of(*stream), Ids(order.begin() + 2, order.end()));
    }
    EXPECT_EQ(rest_of(*shuffle(none).stream(0)), Ids());
    EXPECT_EQ(shuffle(none).stream(0)->skip(3), 0);
}

TEST(ShuffledIterable, SkipsSamplesAtEachPosition) {
    for (const bool skips : {false, true}) {
        const Numbers twenty(20, {.skips = skips});
        const auto shuffled = shuffle(twenty, {.buffer_size = 6, .seed = 3});
        const Ids order = rest_of(*shuffled.stream(0));
        for (std::int64_t n = 0; n <= 22; ++n) {
            SCOPED_TRACE(n);
            const auto stream = shuffled.stream(0);
            EXPECT_EQ(stream->skip(n), std::min<std::int64_t>(n, 20));
            EXPECT_EQ(rest_of(*stream),
                      Ids(order.begin() + std::min<std::int64_t>(n, 20), order.end()));
            const auto later = shuffled.stream(0);
            ASSERT_TRUE(later->next());
            EXPECT_EQ(later->skip(n), std::min<std::int64_t>(n, 19));
            EXPECT_EQ(rest_of(*later),
                      Ids(order.begin() + std::min<std::int64_t>(n + 1, 20), order.end()));
        }
    }
}

TEST(ShuffledIterable, ReadsOnlyTheBufferToSkipSamples) {
    const Numbers many(1000, {.skips = true});
    const auto shuffled = shuffle(many, {.buffer_size = 10});
    EXPECT_EQ(shuffled.stream(0)->skip(900), 900);
    EXPECT_EQ(many.read(), 10);
}

TEST(ShuffledIterable, ReadsShardsInARandomOrder) {
    std::vector<std::shared_ptr<const IterableDataset>> shards;
    Ids first_of_shards;
    for (std::int64_t i = 0; i < 8; ++i) {
        shards.push_back(std::make_shared<GeneratorDataset>([i](std::int64_t) {
            return [at = 10 * i, end = 10 * i + 3]() mutable -> std::optional<Tree> {
                if (at == end) return std::nullopt;
                return tests::sample(at++);
            };
        }));
        first_of_shards.push_back(10 * i);
    }
    const ShardedDataset sharded(shards);
    const auto shuffled = shuffle(sharded, {.buffer_size = 1});
    const auto firsts = [&](std::int64_t epoch) {
        Ids ids = rest_of(*shuffled.stream(epoch));
        std::erase_if(ids, [](std::int64_t id) { return id % 10 != 0; });
        return ids;
    };
    EXPECT_NE(firsts(0), first_of_shards);
    EXPECT_NE(firsts(0), firsts(1));
    EXPECT_THAT(firsts(1), UnorderedElementsAreArray(first_of_shards));

    EXPECT_EQ(shuffled.num_shards(), 8);
    Ids all = rest_of(*shuffled.shard(2, 0)->stream(0));
    EXPECT_EQ(all.size(), 12u);
    for (const std::int64_t id : rest_of(*shuffled.shard(2, 1)->stream(0))) all.push_back(id);
    EXPECT_THAT(all, UnorderedElementsAreArray(rest_of(*sharded.stream(0))));
}

TEST(ShuffledIterable, ResumesInALoader) {
    const Numbers many(24);
    const auto shuffled = shuffle(many, {.buffer_size = 5});
    DataLoader loader(shuffled, {.batch_size = 4});
    const Batches batches = pass(loader);
    DataLoader resumed(shuffled, {.batch_size = 4});
    EXPECT_EQ(pass(skip_first_batches(resumed, 2)), Batches(batches.begin() + 2, batches.end()));
}

TEST(ShuffledIterable, SharesTheGeneratorOfTheDataset) {
    const Numbers ten(10);
    const auto generator = std::make_shared<Generator>(7);
    const auto inner = shuffle(ten, {.buffer_size = 3, .generator = generator});
    EXPECT_EQ(inner.generator(), generator);
    EXPECT_EQ(rest_of(*inner.stream(0)),
              rest_of(*shuffle(ten, {.buffer_size = 3, .seed = 7}).stream(0)));
    EXPECT_EQ(shuffle(inner, {.generator = generator}).generator(), generator);
    expect_error<UsageError>({"shuffle: the dataset has a generator of its own", "seed 7"},
                             [&] { shuffle(inner); });
}

TEST(ShuffledIterable, RejectsInvalidArguments) {
    const Numbers ten(10);
    expect_error<ValueError>({"shuffle: buffer_size must be at least 1: it is 0"},
                             [&] { shuffle(ten, {.buffer_size = 0}); });
    expect_error<UsageError>({"shuffle: the dataset must not be null"},
                             [] { shuffle(std::shared_ptr<const IterableDataset>()); });
}

}  // namespace
}  // namespace axle::data
