#include "data/loading/composed_iterables.h"

#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::expect_error, tests::Ids, tests::Numbers, tests::pass, tests::sample;

// An iterable dataset with a generator. Its samples do not depend on the generator.
class Shuffled : public Numbers {
  public:
    explicit Shuffled(std::shared_ptr<Generator> generator)
        : Numbers(2), generator_(std::move(generator)) {}
    std::shared_ptr<Generator> generator() const override { return generator_; }

  private:
    std::shared_ptr<Generator> generator_;
};

// Returns samples with the ids first to first + n - 1.
std::shared_ptr<const IterableDataset> counter(std::int64_t first, std::int64_t n,
                                               bool sized = true) {
    return std::make_shared<GeneratorDataset>(
        [first, n](std::int64_t) {
            return [at = first, end = first + n]() mutable -> std::optional<Tree> {
                if (at == end) return std::nullopt;
                return sample(at++);
            };
        },
        sized ? std::optional(n) : std::nullopt);
}

Ids rest_of(Stream& stream) {
    Ids ids;
    while (const auto next = stream.next()) ids.push_back((*next)["id"].integer());
    return ids;
}

const std::shared_ptr<const IterableDataset> kNullStream;

TEST(ChainDataset, ReadsAndSkipsDatasetsOneAfterAnotherAndAddsTheirSizes) {
    const Numbers first(2);
    const ChainDataset chain({first, counter(10, 0), counter(20, 3)});
    EXPECT_EQ(chain.size(), 5);
    EXPECT_EQ(chain.num_shards(), 1);
    EXPECT_EQ(rest_of(*chain.stream(0)), (Ids{0, 1, 20, 21, 22}));
    EXPECT_EQ(rest_of(*chain.stream(1)), (Ids{100, 101, 20, 21, 22}));
    const auto stream = chain.stream(0);
    EXPECT_EQ(stream->skip(3), 3);
    EXPECT_EQ(rest_of(*stream), (Ids{21, 22}));
    EXPECT_FALSE(ChainDataset({first, counter(0, 1, false)}).size());
}

TEST(ChainDataset, RejectsInvalidDatasetsAndAcceptsOneSharedGenerator) {
    expect_error<ValueError>({"ChainDataset: needs at least one dataset"},
                             [] { ChainDataset({}); });
    expect_error<UsageError>({"ChainDataset: dataset 1 is null"}, [] {
        ChainDataset({counter(0, 1), kNullStream});
    });
    const Shuffled one(std::make_shared<Generator>(1)), two(std::make_shared<Generator>(2));
    expect_error<UsageError>({"ChainDataset: ", "1 and 2"}, [&] { ChainDataset({one, two}); });
    EXPECT_EQ(ChainDataset({counter(0, 1), one, one}).generator(), one.generator());
}

TEST(ChainDataset, GivesEachProcessShardsOfEveryDataset) {
    const ShardedDataset first({counter(0, 2), counter(10, 2), counter(20, 2)});
    const ShardedDataset second({counter(50, 2), counter(60, 2)});
    const ChainDataset chain({first, second});
    EXPECT_EQ(chain.num_shards(), 2);
    EXPECT_EQ(rest_of(*chain.shard(2, 0)->stream(0)), (Ids{0, 1, 20, 21, 50, 51}));
    EXPECT_EQ(rest_of(*chain.shard(2, 1)->stream(0)), (Ids{10, 11, 60, 61}));
    DataLoader loader(chain, {.batch_size = 2});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    EXPECT_TRUE(loader.reads_own_shards());
    EXPECT_EQ(pass(loader), (Batches{{10, 11}, {60, 61}}));
}

TEST(TransformedIterable, ChangesSamplesAndSkipsThemWithoutCallingTheFunction) {
    int calls = 0;
    const auto doubled = map(counter(0, 5), [&](Tree s) {
        ++calls;
        return sample(2 * s["id"].integer());
    });
    EXPECT_EQ(doubled.size(), 5);
    const auto stream = doubled.stream(0);
    EXPECT_EQ(stream->skip(3), 3);
    EXPECT_EQ(rest_of(*stream), (Ids{6, 8}));
    EXPECT_EQ(calls, 2);
}

TEST(TransformedIterable, RemovesSamplesForWhichTheFilterReturnsFalse) {
    const auto odd =
        filter(counter(0, 7), [](const Tree& s) { return s["id"].integer() % 2 == 1; });
    EXPECT_FALSE(odd.size());
    const auto stream = odd.stream(0);
    EXPECT_EQ(stream->skip(1), 1);
    EXPECT_EQ(rest_of(*stream), (Ids{3, 5}));
    DataLoader loader(odd, {.batch_size = 2});
    EXPECT_EQ(pass(loader), (Batches{{1, 3}, {5}}));
}

TEST(TransformedIterable, KeepsShardsAndGenerator) {
    const ShardedDataset sharded({counter(0, 2), counter(10, 2)});
    const auto same = map(sharded, [](Tree s) { return s; });
    EXPECT_EQ(same.num_shards(), 2);
    EXPECT_EQ(rest_of(*same.shard(2, 1)->stream(0)), (Ids{10, 11}));
    const Shuffled random(std::make_shared<Generator>(1));
    EXPECT_EQ(map(random, [](Tree s) { return s; }).generator(), random.generator());
}

TEST(TransformedIterable, RejectsNullDatasetsAndEmptyFunctions) {
    expect_error<UsageError>({"map: the function must not be empty"},
                             [] { map(counter(0, 1), std::function<Tree(Tree)>()); });
    expect_error<UsageError>({"filter: the function must not be empty"},
                             [] { filter(counter(0, 1), std::function<bool(const Tree&)>()); });
    expect_error<UsageError>({"TransformedIterable: the function must not be empty"},
                             [] { TransformedIterable(counter(0, 1), nullptr, true); });
    expect_error<UsageError>({"map: the dataset must not be null"}, [] {
        map(IterableDatasetRef(kNullStream), [](Tree s) { return s; });
    });
}

}  // namespace
}  // namespace axle::data
