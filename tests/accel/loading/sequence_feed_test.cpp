// Tests loaders whose batches several processes share (deepspeed_ulysses_dl_adapter).
#include <string>
#include <vector>

#include "tests/accel/loading/loaders.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::ParallelismConfig;
using tests::expect_error;
using tests::on_ranks;
using tests::Rows;
using Group = std::shared_ptr<dist::ProcessGroup>;

// Returns samples {"input_ids"} of `length` tokens; token t of sample i is 10 i + t.
data::FunctionDataset sentences(std::int64_t n, std::int64_t length = 4) {
    return data::from_function(n, [length](std::int64_t i) {
        return Tree{{"input_ids", arange(length) + 10 * i}};
    });
}

AcceleratorOptions sharing(const Group& group, ParallelismConfig config) {
    return {.cpu = true, .parallelism_config = std::move(config), .process_group = group};
}

// Four processes: two groups of two that share sequences.
const ParallelismConfig kTwoByTwo{.dp_replicate_size = 2, .sp_size = 2};

// A prepared loader whose batches several processes share.
struct SharedLoader {
    SharedLoader(const AcceleratorOptions& options, std::int64_t samples,
                 data::LoaderOptions loader_options = {})
        : accelerator(options), loader(sentences(samples), std::move(loader_options)) {
        accelerator.prepare(loader);
        accelerator.deepspeed_ulysses_dl_adapter(loader, net);
    }

    // Runs a pass, or its first `limit` micro-batches, after which it stores the loader's state.
    // Returns the sample in each micro-batch. Checks that this process has its part of each
    // sequence.
    Rows pass(std::int64_t limit = -1) {
        Rows samples;
        for (auto& batch : loader) {
            const std::vector<double> ids = batch["input_ids"].tensor().to_vector();
            EXPECT_EQ(ids.size(), 2u);
            EXPECT_EQ(static_cast<std::int64_t>(ids[0]) % 10,
                      2 * accelerator.sequence_parallel_rank());
            EXPECT_EQ(batch["position_ids"].tensor().to_vector()[0],
                      2 * accelerator.sequence_parallel_rank());
            samples.push_back(static_cast<std::int64_t>(ids[0]) / 10);
            if (std::ssize(samples) == limit) {
                state = loader.state_dict();
                break;
            }
        }
        return samples;
    }

    Accelerator accelerator;
    tests::SmallNet net;
    data::DataLoader loader;
    Tree state;
};

// Covers 3.deepspeed_ulysses_dl_adapter, 17.data, 31.maybe_context_parallel.
TEST(UlyssesAdapter, YieldsTheBatchesOfAllRanksOfAGroupInTurn) {
    on_ranks(4, [](const Group& group) {
        SharedLoader shared(sharing(group, kTwoByTwo), 8);
        EXPECT_EQ(shared.loader.len(), 4);
        const bool first = group->rank() < 2;
        EXPECT_EQ(shared.pass(), first ? Rows({0, 1, 4, 5}) : Rows({2, 3, 6, 7}));
        EXPECT_EQ(shared.loader.epoch(), 1);
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesAdapter, CountsMicroBatchesAndReportsTheEndAndTheRemainder) {
    on_ranks(4, [](const Group& group) {
        SharedLoader shared(sharing(group, kTwoByTwo), 7);  // the last batch repeats sample 0
        std::int64_t count = 0;
        for (auto& batch : shared.loader) {
            ++count;
            EXPECT_EQ(shared.loader.position(), count);
            const accel::GradientState state = shared.accelerator.gradient_state();
            EXPECT_EQ(state.end_of_dataloader, count == 4);
            EXPECT_EQ(state.remainder, count == 4 ? 1 : -1);
            // Only the first process of a group has valid rows.
            const Tensor gathered =
                shared.accelerator
                    .gather_for_metrics(Tree(batch["input_ids"].tensor().narrow(1, 0, 1)))
                    .tensor();
            EXPECT_EQ(gathered.size(0), count == 4 ? 1 : 2);
        }
        EXPECT_EQ(count, 4);
    });
}

// In the last step, only the first process of the group has a batch.
// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesAdapter, YieldsTheBatchesOfAShortLastStepAlsoAfterResuming) {
    on_ranks(2, [](const Group& group) {
        AcceleratorOptions options = sharing(group, {.sp_size = 2});
        options.dataloader_config = accel::DataLoaderConfiguration{.even_batches = false};
        SharedLoader shared(options, 5);
        for (int pass = 0; pass < 2; ++pass) {
            EXPECT_EQ(shared.pass(), Rows({0, 1, 2, 3, 4}));
            EXPECT_EQ(shared.loader.epoch(), pass + 1);
        }
        std::int64_t count = 0;
        for ([[maybe_unused]] auto& batch : shared.loader)
            EXPECT_EQ(shared.accelerator.gradient_state().end_of_dataloader, ++count == 5);
        EXPECT_EQ(count, 5);
        shared.pass(4);
        SharedLoader after(options, 5);
        after.loader.load_state_dict(shared.state);
        EXPECT_EQ(after.pass(), Rows({4}));
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesAdapter, ResumesAtAnyMicroBatchButOnOtherProcessCountsOnlyAfterABatch) {
    on_ranks(4, [](const Group& group) {
        const data::LoaderOptions shuffled{.shuffle = true, .seed = 3};
        SharedLoader whole(sharing(group, kTwoByTwo), 12, shuffled);
        const Rows all = whole.pass();
        ASSERT_EQ(all.size(), 6u);
        for (std::int64_t stop = 1; stop < 6; ++stop) {
            SharedLoader before(sharing(group, kTwoByTwo), 12, shuffled);
            before.pass(stop);
            SharedLoader after(sharing(group, kTwoByTwo), 12, shuffled);
            after.loader.load_state_dict(before.state);
            EXPECT_EQ(after.pass(), Rows(all.begin() + stop, all.end())) << "after " << stop;
            EXPECT_EQ(after.loader.epoch(), 1);
        }
        const auto rest = whole.accelerator.skip_first_batches(whole.loader, 3);
        EXPECT_EQ(rest.len(), 3);
        // After a complete batch, another number of processes can resume.
        SharedLoader before(sharing(group, kTwoByTwo), 12, shuffled);
        before.pass(2);
        Accelerator alone({.cpu = true, .process_group = dist::ProcessGroup::alone()});
        data::DataLoader loader(sentences(12), shuffled);
        alone.prepare(loader);
        loader.load_state_dict(before.state);
        EXPECT_EQ(loader.position(), 4);
        before.pass(1);
        expect_error<ValueError>(
            {"DataLoader: load_state_dict: cannot resume within a batch: the state has position 1"},
            [&] { loader.load_state_dict(before.state); });
        before.state.set("micro_batches", 0);
        expect_error<ValueError>({"DataLoader: load_state_dict: micro_batches must be positive: 0"},
                                 [&] { loader.load_state_dict(before.state); });
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesAdapter, YieldsDispatchedBatchesInTurn) {
    on_ranks(2, [](const Group& group) {
        AcceleratorOptions options = sharing(group, {.sp_size = 2});
        options.dataloader_config = accel::DataLoaderConfiguration{.dispatch_batches = true};
        SharedLoader shared(options, 6);
        EXPECT_EQ(shared.loader.len(), 6);
        EXPECT_EQ(shared.pass(), Rows({0, 1, 2, 3, 4, 5}));
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter, 17.sp_handler.
TEST(UlyssesAdapter, RejectsInvalidSequenceLengthsAndUnpreparedLoaders) {
    on_ranks(2, [](const Group& group) {
        const auto pass = [&](const ParallelismConfig& config, std::int64_t length) {
            Accelerator accelerator(sharing(group, config));
            tests::SmallNet net;
            data::DataLoader loader(sentences(4, length));
            accelerator.prepare(loader);
            accelerator.deepspeed_ulysses_dl_adapter(loader, net);
            for ([[maybe_unused]] auto& batch : loader) break;
        };
        expect_error<ValueError>({"deepspeed_ulysses_dl_adapter: the length of sequences must be a "
                                  "multiple of sp_size: length 5, sp_size 2"},
                                 [&] { pass({.sp_size = 2}, 5); });
        const ParallelismConfig fixed{
            .sp_size = 2, .sp_handler = {{.sp_seq_length = 6, .sp_seq_length_is_variable = false}}};
        EXPECT_NO_THROW(pass(fixed, 6));
        expect_error<ValueError>(
            {"deepspeed_ulysses_dl_adapter: sequences must have the length sp_seq_length 6"},
            [&] { pass(fixed, 4); });
        Accelerator accelerator(sharing(group, {.sp_size = 2}));
        tests::SmallNet net;
        data::DataLoader loader(sentences(4));
        expect_error<UsageError>(
            {"deepspeed_ulysses_dl_adapter: the loader is not prepared; prepare it first"},
            [&] { accelerator.deepspeed_ulysses_dl_adapter(loader, net); });
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesAdapter, HasNoEffectAfterFreeMemory) {
    on_ranks(2, [](const Group& group) {
        SharedLoader shared(sharing(group, {.sp_size = 2}), 4);
        shared.accelerator.free_memory();
        EXPECT_EQ(shared.loader.len(), 4);
        std::int64_t count = 0;
        for (auto& batch : shared.loader) {
            EXPECT_EQ(batch["input_ids"].tensor().shape(), Shape({1, 4}));
            ++count;
        }
        EXPECT_EQ(count, 4);
    });
}

}  // namespace
}  // namespace axle
