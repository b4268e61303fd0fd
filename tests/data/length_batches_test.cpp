#include "data/length_batches.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::expect_error, tests::Ids, tests::pass_of;

// Returns n lengths between 1 and 50 in no particular order.
Ids mixed_lengths(std::int64_t n) {
    Ids lengths;
    for (std::int64_t i = 0; i < n; ++i) lengths.push_back(1 + (i * i * 7 + 3 * i) % 50);
    return lengths;
}

std::int64_t length_of(std::int64_t sample, const Ids& lengths) {
    return lengths[static_cast<std::size_t>(sample)];
}

// Returns the number of tokens of a batch, with padding.
std::int64_t tokens_of(const Ids& batch, const Ids& lengths) {
    std::int64_t longest = 0;
    for (const std::int64_t sample : batch) longest = std::max(longest, length_of(sample, lengths));
    return std::ssize(batch) * longest;
}

std::int64_t tokens_of(const Batches& batches, const Ids& lengths) {
    std::int64_t tokens = 0;
    for (const Ids& batch : batches) tokens += tokens_of(batch, lengths);
    return tokens;
}

Ids sorted_samples(const Batches& batches) {
    Ids samples;
    for (const Ids& batch : batches) samples.insert(samples.end(), batch.begin(), batch.end());
    std::sort(samples.begin(), samples.end());
    return samples;
}

Ids first_numbers(std::int64_t n) { return SequentialSampler(n).indices(); }

TEST(BucketBatchSampler, SortsEachBucketByLength) {
    const Ids lengths = {5, 1, 4, 2, 9, 7, 8, 6, 3, 0, 0};
    const BucketBatchSampler sampler(lengths, 2, {.shuffle = false, .bucket_batches = 2});
    EXPECT_EQ(pass_of(sampler), (Batches{{1, 3}, {2, 0}, {7, 5}, {6, 4}, {9, 8}, {10}}));
    EXPECT_EQ(pass_of(sampler, 1), pass_of(sampler));
    EXPECT_EQ(sampler.generator(), nullptr);
    EXPECT_EQ(sampler.batch_size(), 2);
    EXPECT_EQ(sampler.num_samples(), 11);
}

TEST(BucketBatchSampler, VisitsEachSampleOnceInAnotherOrderInEachEpoch) {
    const Ids lengths = mixed_lengths(103);
    const BucketBatchSampler sampler(lengths, 8, {.bucket_batches = 4, .seed = 3});
    EXPECT_EQ(sampler.size(), 13);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        const Batches batches = pass_of(sampler, epoch);
        EXPECT_EQ(sorted_samples(batches), first_numbers(103));
        for (std::size_t i = 0; i < 13; ++i) EXPECT_EQ(batches[i].size(), i < 12 ? 8u : 7u);
        EXPECT_EQ(pass_of(BucketBatchSampler(lengths, 8, {.bucket_batches = 4, .seed = 3}), epoch),
                  batches);
        EXPECT_NE(pass_of(sampler, epoch + 1), batches);
    }
}

TEST(BucketBatchSampler, PadsLessThanRandomBatches) {
    const Ids lengths = mixed_lengths(400);
    const FixedBatchSampler random(std::make_shared<RandomSampler>(400), 10, false);
    const BucketBatchSampler buckets(lengths, 10, {.bucket_batches = 10});
    EXPECT_LT(tokens_of(pass_of(buckets), lengths) * 5, tokens_of(pass_of(random), lengths) * 4);
}

TEST(BucketBatchSampler, PutsBatchesInRandomOrder) {
    const Ids lengths = mixed_lengths(200);
    const Batches batches = pass_of(BucketBatchSampler(lengths, 10));
    std::vector<std::int64_t> tokens;
    for (const Ids& batch : batches) tokens.push_back(tokens_of(batch, lengths));
    EXPECT_FALSE(std::is_sorted(tokens.begin(), tokens.end()));
}

TEST(BucketBatchSampler, DropsSamplesOfAllLengthsWithDropLast) {
    Ids lengths(11, 1);
    lengths[0] = 9;  // sample 0 is the longest
    const BucketBatchSampler sampler(lengths, 5, {.drop_last = true});
    EXPECT_EQ(sampler.size(), 2);
    EXPECT_TRUE(sampler.drop_last());
    std::vector<bool> is_dropped(11);
    for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
        const Ids read = sorted_samples(pass_of(sampler, epoch));
        ASSERT_EQ(read.size(), 10u);
        for (std::int64_t i = 0; i < 11; ++i)
            if (!std::binary_search(read.begin(), read.end(), i))
                is_dropped[static_cast<std::size_t>(i)] = true;
    }
    EXPECT_EQ(std::count(is_dropped.begin(), is_dropped.end(), true), 11);
}

TEST(BucketBatchSampler, RejectsInvalidArgumentsAndAcceptsNoSamples) {
    expect_error<ValueError>({"BucketBatchSampler: ", "sample 1 has length -3"}, [] {
        BucketBatchSampler({1, -3}, 2);
    });
    expect_error<ValueError>({"BucketBatchSampler: ", "batch_size is 0", "bucket_batches is 100"},
                             [] { BucketBatchSampler({1}, 0); });
    expect_error<ValueError>({"BucketBatchSampler: ", "batch_size is 2", "bucket_batches is 0"},
                             [] { BucketBatchSampler({1}, 2, {.bucket_batches = 0}); });
    EXPECT_EQ(BucketBatchSampler({}, 2).size(), 0);
}

TEST(TokenBatchSampler, FillsBatchesUpToTheBudgetWithPadding) {
    const Ids lengths = {5, 1, 4, 2, 10, 3, 0};
    const TokenBatchSampler sampler(lengths, 10, {.shuffle = false});
    EXPECT_EQ(pass_of(sampler), (Batches{{
                                             6,
                                             1,
                                             3,
                                         },
                                         {5, 2},
                                         {0},
                                         {4}}));
    EXPECT_EQ(sampler.size(), 4);
    EXPECT_EQ(sampler.batch_size(), 0);
    EXPECT_EQ(sampler.num_samples(), 7);
    EXPECT_EQ(sampler.generator(), nullptr);
    EXPECT_EQ(pass_of(TokenBatchSampler({0, 0, 0}, 2, {.shuffle = false})), (Batches{{0, 1}, {2}}));
}

TEST(TokenBatchSampler, VisitsEachSampleOnceWithinTheBudgetInEachEpoch) {
    const Ids lengths = mixed_lengths(300);
    const TokenBatchSampler sampler(lengths, 120, {.seed = 3});
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        const Batches batches = pass_of(sampler, epoch);
        EXPECT_EQ(std::ssize(batches), sampler.size());
        EXPECT_EQ(sorted_samples(batches), first_numbers(300));
        for (const Ids& batch : batches) EXPECT_LE(tokens_of(batch, lengths), 120);
        EXPECT_EQ(pass_of(TokenBatchSampler(lengths, 120, {.seed = 3}), epoch), batches);
    }
}

// Returns the batches of an epoch, sorted, with sorted samples.
Batches unordered_pass(const TokenBatchSampler& sampler, std::int64_t epoch) {
    Batches batches = pass_of(sampler, epoch);
    for (Ids& batch : batches) std::sort(batch.begin(), batch.end());
    std::sort(batches.begin(), batches.end());
    return batches;
}

TEST(TokenBatchSampler, ExchangesOnlySamplesOfTheSameLengthAndShufflesBatches) {
    const TokenBatchSampler same(Ids(40, 5), 20), distinct(first_numbers(21), 20);
    EXPECT_NE(unordered_pass(same, 0), unordered_pass(same, 1));
    EXPECT_EQ(unordered_pass(distinct, 0), unordered_pass(distinct, 1));
    EXPECT_NE(pass_of(distinct, 0), pass_of(distinct, 1));
}

TEST(TokenBatchSampler, RejectsInvalidArgumentsAndAcceptsNoSamples) {
    expect_error<ValueError>({"TokenBatchSampler: ", "sample 1 has 9 tokens", "max_tokens is 8"},
                             [] {
                                 TokenBatchSampler({8, 9, 1}, 8);
                             });
    expect_error<ValueError>({"TokenBatchSampler: ", "sample 2 has length -1"}, [] {
        TokenBatchSampler({8, 9, -1}, 9);
    });
    expect_error<ValueError>({"TokenBatchSampler: max_tokens must be positive: 0"},
                             [] { TokenBatchSampler({}, 0); });
    EXPECT_EQ(TokenBatchSampler({}, 1).size(), 0);
}

TEST(BucketAndTokenBatchSampler, UseTheSeedOfTheirGenerator) {
    const auto generator = std::make_shared<Generator>(1);
    const Ids lengths = mixed_lengths(90);
    const BucketBatchSampler buckets(lengths, 4, {.seed = 9, .generator = generator});
    const TokenBatchSampler tokens(lengths, 200, {.seed = 9, .generator = generator});
    EXPECT_EQ(buckets.generator(), generator);
    EXPECT_EQ(tokens.generator(), generator);
    for (const std::uint64_t seed : {1, 2}) {
        generator->manual_seed(seed);
        EXPECT_EQ(pass_of(buckets, 5), pass_of(BucketBatchSampler(lengths, 4, {.seed = seed}), 5));
        EXPECT_EQ(pass_of(tokens, 5), pass_of(TokenBatchSampler(lengths, 200, {.seed = seed}), 5));
    }
}

}  // namespace
}  // namespace axle::data
