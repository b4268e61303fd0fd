#include "data/sampler.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "data/mt19937.h"
#include "kernels/error.h"
#include "tests/data/samples.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using Indices = std::vector<std::int64_t>;
using tests::Batches, tests::pass_of;

TEST(Mt19937, MatchesRandpermOfPyTorchAndRejectsNegativeSizes) {
    EXPECT_EQ(randperm(0, 0), Indices{});
    EXPECT_EQ(randperm(1, 0), Indices{0});
    EXPECT_EQ(randperm(5, 0), (Indices{4, 0, 1, 3, 2}));
    EXPECT_EQ(randperm(2, 1), (Indices{1, 0}));
    EXPECT_EQ(randperm(10, 21), (Indices{3, 7, 2, 5, 4, 9, 6, 8, 1, 0}));
    EXPECT_EQ(randperm(16, 42), (Indices{6, 3, 0, 7, 10, 15, 2, 12, 14, 9, 8, 5, 4, 13, 11, 1}));
    EXPECT_EQ(randperm(33, 42),
              (Indices{6,  20, 17, 7,  30, 8,  13, 27, 5,  26, 31, 21, 32, 3,  10, 19, 1,
                       24, 4,  29, 12, 15, 14, 2,  16, 18, 0,  25, 9,  23, 28, 22, 11}));
    EXPECT_EQ(randperm(16, 1234567),
              (Indices{3, 15, 10, 4, 13, 9, 14, 5, 8, 1, 12, 11, 7, 6, 2, 0}));
    EXPECT_EQ(randperm(5, 5 + (std::uint64_t{1} << 32)), randperm(5, 5));
    EXPECT_THROW(randperm(-1, 0), ValueError);
}

TEST(Mt19937, MatchesRandintOfPyTorchInNarrowAndWideRanges) {
    const auto draw = [](std::int64_t high) {
        Mt19937 random(42);
        return randint(high, 4, random);
    };
    EXPECT_EQ(draw(10), (Indices{2, 7, 6, 4}));
    EXPECT_EQ(draw((1 << 28) - 1), (Indices{266460267, 199900607, 56755051, 250975504}));
    EXPECT_EQ(draw(1 << 28), (Indices{199900595, 250975502, 127521863, 147532820}));
    EXPECT_EQ(draw(std::int64_t{1} << 40),
              (Indices{441507790259, 395924837646, 458615280711, 810017303572}));
}

TEST(Mt19937, ContinuesSameSequenceInCopy) {
    Mt19937 random(7);
    random.next32();
    Mt19937 copy = random;
    EXPECT_EQ(randperm(100, random), randperm(100, copy));
}

TEST(RandomSampler, MatchesSeedableRandomSampler) {
    const RandomSampler small(6, {.seed = 42});
    EXPECT_EQ(small.indices(0), (Indices{0, 3, 2, 4, 1, 5}));
    EXPECT_EQ(small.indices(1), (Indices{4, 0, 5, 1, 2, 3}));
    EXPECT_EQ(small.indices(2), (Indices{4, 0, 3, 2, 5, 1}));
    EXPECT_EQ(small.indices(3), (Indices{5, 2, 0, 1, 4, 3}));
    EXPECT_EQ(small.indices(0), small.indices(0));
    const RandomSampler ten(10, {.seed = 1337});
    EXPECT_EQ(ten.indices(3), (Indices{3, 1, 5, 9, 8, 7, 0, 6, 4, 2}));
}

TEST(RandomSampler, DrawsNumSamplesWithAndWithoutReplacementAndRejectsInvalidSizes) {
    const RandomSampler more(5, {.seed = 42, .num_samples = 13});
    EXPECT_EQ(more.indices(), (Indices{2, 4, 3, 0, 1, 1, 4, 3, 2, 0, 0, 2, 3}));
    const RandomSampler again(10, {.seed = 42, .replacement = true, .num_samples = 12});
    EXPECT_EQ(again.indices(), (Indices{2, 7, 6, 4, 6, 5, 0, 4, 0, 3, 8, 4}));
    EXPECT_EQ(RandomSampler(5, {.num_samples = 2}).size(), 2);
    EXPECT_EQ(RandomSampler(0).indices(), Indices{});
    EXPECT_THROW(RandomSampler(0, {.num_samples = 1}), ValueError);
    EXPECT_THROW(RandomSampler(-1), ValueError);
}

TEST(SequentialAndSubsetSampler, IgnoreEpoch) {
    EXPECT_EQ(SequentialSampler(3).indices(9), (Indices{0, 1, 2}));
    EXPECT_EQ(SubsetSampler({7, 2, 7}).indices(9), (Indices{7, 2, 7}));
}

TEST(RandomSampler, ContinuesAPassOverAGrownDatasetWithItsUnreadSamples) {
    const auto generator = std::make_shared<Generator>(42);
    const RandomSampler sampler(10, {.generator = generator});
    const auto grown = sampler.grown({.epoch = 1, .growths = {{6, 2}, {8, 3}}});
    ASSERT_NE(grown, nullptr);
    EXPECT_EQ(grown->size(), 10);
    EXPECT_EQ(grown->generator(), generator);
    const Indices indices = grown->indices(1);
    Indices expected;  // 2 of the first 6 indices, then 1 of 8, then the rest of 10
    for (const auto& [size, at] : {Growth{6, 2}, Growth{8, 3}, Growth{10, 10}})
        for (const std::int64_t index : RandomSampler(size, {.seed = 42}).indices(1))
            if (std::ssize(expected) < at &&
                std::find(expected.begin(), expected.end(), index) == expected.end())
                expected.push_back(index);
    EXPECT_EQ(indices, expected);
    EXPECT_EQ(grown->indices(0), sampler.indices(0));
    EXPECT_EQ(grown->indices(2), sampler.indices(2));
    generator->manual_seed(43);
    EXPECT_NE(grown->indices(1), expected);
}

TEST(Sampler, SupportsGrowthInAPassIfItsOrderHasEverySampleOnceAndRejectsInvalidGrowths) {
    const GrownPass pass{.epoch = 0, .growths = {{3, 2}}};
    const auto sequential = std::make_shared<SequentialSampler>(7);
    EXPECT_EQ(sequential->grown(pass)->indices(), sequential->indices());
    EXPECT_EQ(SubsetSampler({1, 2, 3, 4}).grown(pass), nullptr);
    EXPECT_EQ(RandomSampler(7, {.num_samples = 6}).grown(pass), nullptr);
    EXPECT_EQ(RandomSampler(7, {.replacement = true}).grown(pass), nullptr);
    EXPECT_EQ(DistributedSampler(7, {.num_replicas = 2}).grown(pass), nullptr);
    const auto batches = std::make_shared<FixedBatchSampler>(sequential, 3, true);
    EXPECT_EQ(pass_of(*batches->grown(pass)), pass_of(*batches));
    EXPECT_EQ(SkipBatchSampler(batches, 1).grown(pass), nullptr);
    for (const std::vector<Growth>& wrong : {std::vector<Growth>{{7, 2}},
                                             {{3, 3}},
                                             {{3, 0}},
                                             {{-1, -2}},
                                             {{5, 2}, {4, 3}},
                                             {{4, 2}, {5, 2}}}) {
        EXPECT_THROW(sequential->grown({.epoch = 0, .growths = wrong}), ValueError);
        EXPECT_THROW(RandomSampler(7).grown({.epoch = 0, .growths = wrong}), ValueError);
    }
}

TEST(FixedBatchSampler, KeepsOrDropsIncompleteLastBatchAndRejectsEmptyBatches) {
    const auto samples = std::make_shared<SequentialSampler>(7);
    const FixedBatchSampler keep(samples, 3, false), drop(samples, 3, true);
    EXPECT_EQ(keep.size(), 3);
    EXPECT_EQ(drop.size(), 2);
    EXPECT_EQ(keep.order(0)(2).samples, Indices{6});
    EXPECT_EQ(drop.order(0)(1).samples, (Indices{3, 4, 5}));
    EXPECT_EQ(FixedBatchSampler(std::make_shared<SequentialSampler>(6), 3, false).size(), 2);
    EXPECT_EQ(FixedBatchSampler(std::make_shared<SequentialSampler>(0), 3, false).size(), 0);
    EXPECT_THROW(FixedBatchSampler(samples, 0, false), ValueError);
}

TEST(Mt19937, MatchesRecordedPermutationsOfPyTorch) {
    const auto file = tests::vectors("torch_randperm.json");
    for (const auto& c : file["cases"])
        EXPECT_EQ(randperm(c["n"].get<std::int64_t>(), c["seed"].get<std::uint64_t>()),
                  c["perm"].get<Indices>())
            << c;
}

// Covers 4.SeedableRandomSampler.
TEST(RandomSampler, MatchesRecordingsOfSeedableRandomSampler) {
    const auto file = tests::vectors("seedable_sampler.json");
    for (const auto& c : file["cases"]) {
        const auto n = c["n"].get<std::int64_t>();
        const auto epochs = c["epochs"].get<Batches>();
        const RandomSampler sampler(n, {.seed = c["data_seed"].get<std::uint64_t>()});
        for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch)
            EXPECT_EQ(sampler.indices(static_cast<std::int64_t>(epoch)), epochs[epoch]) << c;
        EXPECT_EQ(sampler.indices(2), c["restart_at_epoch2"].get<Indices>()) << c;

        DataLoader loader(
            from_function(n, tests::sample),
            {.batch_size = n, .shuffle = true, .seed = c["data_seed"].get<std::uint64_t>()});
        for (const Indices& epoch : epochs) {
            for ([[maybe_unused]] auto& batch : loader)
                break;  // an incomplete pass does not change the epoch
            EXPECT_EQ(tests::pass(loader), Batches{epoch}) << c;
        }
    }
}

// Covers 4.DistributedSampler.
TEST(DistributedSampler, MatchesPyTorch) {
    const auto file = tests::vectors("distributed_sampler.json");
    for (const auto& c : file["cases"]) {
        DistributedSamplerOptions options{.num_replicas = c["num_replicas"].get<std::int64_t>(),
                                          .shuffle = c["shuffle"].get<bool>(),
                                          .seed = c.value("seed", std::uint64_t{0}),
                                          .drop_last = c["drop_last"].get<bool>()};
        const auto out = c["out"].get<Batches>();
        ASSERT_EQ(std::ssize(out), options.num_replicas) << c;
        for (; options.rank < options.num_replicas; ++options.rank) {
            const auto rank = static_cast<std::size_t>(options.rank);
            const DistributedSampler sampler(c["n"].get<std::int64_t>(), options);
            EXPECT_EQ(sampler.indices(c.value("epoch", 0)), out[rank]) << c;
            EXPECT_EQ(sampler.size(), std::ssize(out[rank])) << c;
            if (c.contains("len")) {
                EXPECT_EQ(sampler.size(), c["len"][rank]) << c;
            }
        }
    }
}

TEST(DistributedSampler, RejectsInvalidArguments) {
    EXPECT_THROW(DistributedSampler(4, {.num_replicas = 2, .rank = 2}), ValueError);
    EXPECT_THROW(DistributedSampler(4, {.num_replicas = 2, .rank = -1}), ValueError);
    EXPECT_THROW(DistributedSampler(4, {.num_replicas = 0}), ValueError);
    EXPECT_THROW(DistributedSampler(-1), ValueError);
}

// Covers 4.SkipBatchSampler.
TEST(SkipBatchSampler, YieldsTheBatchesAndLengthsOfAccelerate) {
    const auto file = tests::vectors("skip_batch_sampler.json");
    for (const auto& c : file["cases"]) {
        const auto whole = std::make_shared<FixedBatchSampler>(
            std::make_shared<SequentialSampler>(c["n"].get<std::int64_t>()),
            c["batch_size"].get<std::int64_t>(), c["drop_last"].get<bool>());
        const SkipBatchSampler sampler(whole, c["skip"].get<std::int64_t>());
        EXPECT_EQ(pass_of(sampler), c["out"].get<Batches>()) << c;
        EXPECT_EQ(sampler.size(), std::ssize(c["out"])) << c;
        if (c["len"] == "ValueError(negative)") {
            EXPECT_THROW(sampler.len(), ValueError) << c;
        } else {
            EXPECT_EQ(sampler.len(), c["len"]) << c;
        }
    }
}

TEST(SkipBatchSampler, CountsRemainingSamples) {
    const auto samples = std::make_shared<SequentialSampler>(7);
    for (const bool drop_last : {false, true}) {
        const auto whole = std::make_shared<FixedBatchSampler>(samples, 2, drop_last);
        const auto left = [&](std::int64_t skip) {
            return SkipBatchSampler(whole, skip).num_samples();
        };
        EXPECT_EQ(left(0), 7);
        EXPECT_EQ(left(1), 5);
        EXPECT_EQ(left(3), 1);
        EXPECT_EQ(left(9), drop_last ? 1 : 0);  // the count includes samples that drop_last drops
    }
}

TEST(SkipBatchSampler, SkipsInEveryEpochAndRejectsInvalidArguments) {
    const auto samples = std::make_shared<RandomSampler>(7, RandomSamplerOptions{.seed = 3});
    const auto whole = std::make_shared<FixedBatchSampler>(samples, 2, false);
    const SkipBatchSampler sampler(whole, 2);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        Batches expected = pass_of(*whole, epoch);
        expected.erase(expected.begin(), expected.begin() + 2);
        EXPECT_EQ(pass_of(sampler, epoch), expected);
    }
    EXPECT_EQ(sampler.generator(), samples->generator());
    EXPECT_EQ(sampler.batch_size(), 2);
    EXPECT_FALSE(sampler.drop_last());
    EXPECT_THROW(SkipBatchSampler(whole, -1), ValueError);
    EXPECT_THROW(SkipBatchSampler(nullptr, 1), UsageError);
}

TEST(Generator, SetsSeedOfAllSamplersThatShareIt) {
    const auto generator = std::make_shared<Generator>(1);
    const RandomSampler a(20, {.generator = generator});
    const RandomSampler b(20, {.seed = 7, .generator = generator});
    EXPECT_EQ(a.indices(), b.indices());
    EXPECT_EQ(a.indices(2), RandomSampler(20, {.seed = 1}).indices(2));
    generator->manual_seed(9);
    EXPECT_EQ(a.indices(), RandomSampler(20, {.seed = 9}).indices());
    EXPECT_EQ(SequentialSampler(3).generator(), nullptr);
}

}  // namespace
}  // namespace axle::data
