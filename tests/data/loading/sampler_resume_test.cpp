// Tests loaders with weighted samplers and with batches by length on several processes, and their
// saved positions. Each process is simulated by a loader on which shard() was called.
#include <algorithm>

#include <gtest/gtest.h>

#include "data/length_batches.h"
#include "data/loading/loader.h"
#include "data/weighted_sampler.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::expect_error, tests::Ids, tests::ids_of, tests::pass, tests::sample;

enum class Kind { weighted, bucket, token };
constexpr Kind kKinds[] = {Kind::weighted, Kind::bucket, Kind::token};
constexpr std::int64_t kSamples = 26;

Ids lengths(std::int64_t n) {
    Ids all;
    for (std::int64_t i = 0; i < n; ++i) all.push_back(1 + i * 7 % 9);
    return all;
}

// Returns the loader of a process. Together, the processes read 4 samples per step, or one batch
// each if the kind is `token`.
std::unique_ptr<DataLoader> make_loader(Kind kind, std::int64_t processes, std::int64_t rank,
                                        std::int64_t n = kSamples, std::uint64_t seed = 3) {
    LoaderOptions options{.num_workers = 2};
    const std::int64_t batch_size = 4 / processes;
    if (kind == Kind::weighted) {
        const Ids weights = lengths(n);
        options.batch_size = batch_size;
        options.sampler = std::make_shared<WeightedRandomSampler>(
            std::vector<double>(weights.begin(), weights.end()), n,
            WeightedRandomSamplerOptions{.seed = seed});
    } else if (kind == Kind::bucket) {
        options.batch_sampler = std::make_shared<BucketBatchSampler>(
            lengths(n), batch_size, BucketBatchSamplerOptions{.bucket_batches = 2, .seed = seed});
    } else {
        options.batch_sampler = std::make_shared<TokenBatchSampler>(
            lengths(n), 12, TokenBatchSamplerOptions{.seed = seed});
    }
    auto loader = std::make_unique<DataLoader>(from_function(n, sample), options);
    if (processes > 1)
        loader->shard(ShardOptions{.num_processes = processes, .process_index = rank});
    return loader;
}

TEST(SamplersOfLoaders, ResumeExactlyAtEveryBatch) {
    for (const Kind kind : kKinds)
        for (const std::int64_t processes : {1, 2})
            for (std::int64_t rank = 0; rank < processes; ++rank) {
                const auto whole = make_loader(kind, processes, rank);
                pass(*whole);
                const Batches second = pass(*whole);
                for (std::int64_t stop = 1; stop < std::ssize(second); ++stop) {
                    const auto interrupted = make_loader(kind, processes, rank);
                    interrupted->set_epoch(1);
                    Batches read;
                    Tree state;
                    for (auto& batch : *interrupted) {
                        read.push_back(ids_of(batch));
                        state = interrupted->state_dict();
                        if (std::ssize(read) == stop) break;
                    }
                    // The state restores the seed.
                    const auto resumed = make_loader(kind, processes, rank, kSamples, 99);
                    resumed->load_state_dict(from_json(to_json(state)));
                    for (const Ids& batch : pass(*resumed)) read.push_back(batch);
                    EXPECT_EQ(read, second) << static_cast<int>(kind) << " stopped after " << stop;
                }
            }
}

TEST(SamplersOfLoaders, ContinueAPassOnAnotherNumberOfProcesses) {
    for (const Kind kind : {Kind::weighted, Kind::token}) {
        Batches ranks[2];
        for (std::int64_t rank = 0; rank < 2; ++rank)
            ranks[rank] = pass(*make_loader(kind, 2, rank));
        const auto first = make_loader(kind, 2, 0);
        Tree state;
        for ([[maybe_unused]] auto& batch : *first)
            if (first->position() == 2) {
                state = first->state_dict();
                break;
            }
        const auto resumed = make_loader(kind, 1, 0);
        resumed->load_state_dict(state);
        Ids expected, actual;
        for (std::size_t i = 2; i < ranks[0].size(); ++i)
            for (const Batches& batches : ranks)
                expected.insert(expected.end(), batches[i].begin(), batches[i].end());
        for (const Ids& batch : pass(*resumed))
            actual.insert(actual.end(), batch.begin(), batch.end());
        expected.resize(actual.size());  // even_batches repeats samples at the end
        EXPECT_EQ(actual, expected) << static_cast<int>(kind);
    }
}

TEST(SamplersOfLoaders, DivideEachPassAmongProcesses) {
    for (const Kind kind : {Kind::bucket, Kind::token}) {
        Ids all;
        for (std::int64_t rank = 0; rank < 2; ++rank) {
            const auto loader = make_loader(kind, 2, rank);
            std::int64_t batches = 0;
            for (auto& batch : *loader) {
                const Ids ids = ids_of(batch);
                all.insert(all.end(), ids.begin(), ids.begin() + loader->valid_samples());
                ++batches;
            }
            EXPECT_EQ(batches, loader->len());
        }
        std::sort(all.begin(), all.end());
        EXPECT_EQ(all, SequentialSampler(kSamples).indices()) << static_cast<int>(kind);
    }
}

TEST(SamplersOfLoaders, SplitBatchesOfSimilarLengthsAmongProcesses) {
    const auto batches = std::make_shared<BucketBatchSampler>(lengths(24), 4);
    Batches ranks[2];
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        DataLoader loader(from_function(24, sample), {.batch_sampler = batches});
        loader.shard(
            ShardOptions{.num_processes = 2, .process_index = rank, .split_batches = true});
        ranks[rank] = pass(loader);
    }
    const Batches whole = tests::pass_of(*batches);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        Ids joined = ranks[0][i];
        joined.insert(joined.end(), ranks[1][i].begin(), ranks[1][i].end());
        EXPECT_EQ(joined, whole[i]);
    }
}

TEST(SamplersOfLoaders, RejectGrownDatasetsWithinAPass) {
    for (const Kind kind : kKinds) {
        const auto loader = make_loader(kind, 1, 0);
        Tree state;
        for ([[maybe_unused]] auto& batch : *loader) {
            state = loader->state_dict();
            break;
        }
        expect_error<ValueError>(
            {"DataLoader: load_state_dict: ", "26", "27", "does not support growth within a pass"},
            [&] { make_loader(kind, 1, 0, 27)->load_state_dict(state); });
    }
}

}  // namespace
}  // namespace axle::data
