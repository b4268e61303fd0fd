#include "data/loading/shard.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/data/samples.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using tests::Batches, tests::GivenBatches, tests::pass_of;

std::vector<Batches> shards_of(const std::shared_ptr<const data::BatchSampler>& whole,
                               data::ShardOptions options) {
    std::vector<Batches> shards;
    for (std::int64_t rank = 0; rank < options.num_processes; ++rank) {
        options.process_index = rank;
        shards.push_back(pass_of(data::BatchSamplerShard(whole, options)));
    }
    return shards;
}

std::vector<std::int64_t> sizes_of(const std::shared_ptr<const data::BatchSampler>& whole,
                                   data::ShardOptions options) {
    std::vector<std::int64_t> sizes;
    for (options.process_index = 0; options.process_index < options.num_processes;
         ++options.process_index)
        sizes.push_back(data::BatchSamplerShard(whole, options).size());
    return sizes;
}

// Covers 4.BatchSamplerShard.
TEST(BatchSamplerShard, MatchesAccelerateExceptForDocumentedDifferences) {
    const auto file = tests::vectors("batch_sampler_shard.json");
    for (const auto& c : file["cases"]) {
        const auto n = c["n"].get<std::int64_t>();
        std::shared_ptr<const data::Sampler> sampler = std::make_shared<data::SequentialSampler>(n);
        if (c.contains("sampler_order"))
            sampler = std::make_shared<data::SubsetSampler>(
                c["sampler_order"].get<std::vector<std::int64_t>>());
        const auto whole = std::make_shared<data::FixedBatchSampler>(
            sampler, c["batch_size"].get<std::int64_t>(), c["drop_last"].get<bool>());
        const data::ShardOptions options{.num_processes = c["num_processes"].get<std::int64_t>(),
                                         .split_batches = c["split_batches"].get<bool>(),
                                         .even_batches = c["even_batches"].get<bool>()};
        if (c.contains("error")) {
            EXPECT_THROW(shards_of(whole, options), ValueError) << c;
            continue;
        }
        ASSERT_EQ(shards_of(whole, options), c["shards"].get<std::vector<Batches>>()) << c;
        ASSERT_EQ(whole->size(), c["total_length"]) << c;
        const bool counts_too_much =
            options.split_batches && !options.even_batches && !whole->drop_last();
        if (!counts_too_much) {
            ASSERT_EQ(sizes_of(whole, options), c["len"].get<std::vector<std::int64_t>>()) << c;
        }
    }
}

// Covers 4.without, 31.batch.
TEST(BatchSamplerShard, MatchesAccelerateForVaryingBatchSizes) {
    const auto file = tests::vectors("batch_sampler_shard_dynamic.json");
    for (const auto& c : file["cases"]) {
        const auto whole =
            std::make_shared<GivenBatches>(c["batches"].get<Batches>(), c["drop_last"].get<bool>());
        const data::ShardOptions options{.num_processes = c["num_processes"].get<std::int64_t>(),
                                         .even_batches = c["even_batches"].get<bool>()};
        ASSERT_EQ(shards_of(whole, options), c["shards"].get<std::vector<Batches>>()) << c;
        ASSERT_EQ(sizes_of(whole, options), c["len"].get<std::vector<std::int64_t>>()) << c;
    }
}

TEST(BatchSamplerShard, RejectsInvalidArguments) {
    const auto whole = std::make_shared<data::FixedBatchSampler>(
        std::make_shared<data::SequentialSampler>(10), 3, false);
    EXPECT_THROW(data::BatchSamplerShard(whole, {.num_processes = 2, .process_index = 2}),
                 ValueError);
    EXPECT_THROW(data::BatchSamplerShard(whole, {.num_processes = 0}), ValueError);
    EXPECT_THROW(data::BatchSamplerShard(nullptr, {}), UsageError);
    const auto ragged = std::make_shared<GivenBatches>(Batches{{0, 1}, {2}}, false);
    EXPECT_THROW(data::BatchSamplerShard(ragged, {.split_batches = true}), ValueError);
    try {
        data::BatchSamplerShard(whole, {.num_processes = 2, .split_batches = true});
        FAIL();
    } catch (const ValueError& error) {
        EXPECT_THAT(error.what(),
                    testing::HasSubstr("number of processes: batch size 3, 2 processes"));
    }
}

}  // namespace
}  // namespace axle
