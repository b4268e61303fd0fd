// Tests shard(), dispatch() and hooks of loaders, views that skip batches, nested loops, and batch
// samplers without batches.
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::GivenBatches, tests::Ids, tests::ids_of, tests::Numbers, tests::pass,
    tests::sample;

TEST(DataLoader, RejectsABatchSamplerWithoutBatchesUnlessAllowed) {
    const auto none = std::make_shared<GivenBatches>(Batches{});
    tests::expect_error<ValueError>(
        {"DataLoader: batch_sampler must have at least one batch", "0"},
        [&] { DataLoader loader(from_function(4, sample), {.batch_sampler = none}); });
    DataLoader allowed(from_function(4, sample), {.batch_sampler = none, .allow_empty = true});
    EXPECT_EQ(allowed.len(), 0);
    EXPECT_TRUE(pass(allowed).empty());
}

TEST(ShardedLoader, ReadsItsShareUntilReset) {
    DataLoader loader(from_function(10, sample), {.batch_size = 2});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    EXPECT_EQ(loader.len(), 3);
    EXPECT_EQ(loader.shard_options()->process_index, 1);
    EXPECT_EQ(pass(loader), (Batches{{2, 3}, {6, 7}, {0, 1}}));
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1, .split_batches = true});
    EXPECT_EQ(pass(loader), (Batches{{1}, {3}, {5}, {7}, {9}}));
    loader.shard(std::nullopt);
    EXPECT_EQ(loader.len(), 5);
    EXPECT_FALSE(loader.shard_options());
    EXPECT_EQ(loader.total_batch_size(), 2);
    EXPECT_EQ(pass(loader).size(), 5u);
}

// Covers 4.DataLoaderStateMixin.
TEST(ShardedLoader, ReportsTheSamplesOfAnIncompleteLastStep) {
    DataLoader loader(from_function(22, sample), {.batch_size = 4});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    std::vector<std::int64_t> valid;
    for ([[maybe_unused]] auto& batch : loader) {
        EXPECT_EQ(loader.remainder(), 6);
        EXPECT_EQ(loader.batch_samples(), 4);
        valid.push_back(loader.valid_samples());
    }
    EXPECT_EQ(valid, (Ids{4, 4, 2}));
    EXPECT_EQ(loader.remainder(), -1);
    EXPECT_EQ(loader.total_dataset_length(), 22);
    DataLoader dropping(from_function(22, sample), {.batch_size = 4, .drop_last = true});
    for ([[maybe_unused]] auto& batch : dropping) EXPECT_EQ(dropping.remainder(), -1);
    DataLoader ragged(from_function(3, sample),
                      {.batch_sampler = std::make_shared<GivenBatches>(Batches{{0}, {1, 2}})});
    for ([[maybe_unused]] auto& batch : ragged) EXPECT_EQ(ragged.remainder(), -1);
    EXPECT_EQ(ragged.total_batch_size(), 0);
}

TEST(ShardedLoader, RejectsInvalidOptionsWithoutChanges) {
    DataLoader loader(from_function(6, sample), {.batch_size = 3});
    EXPECT_THROW(loader.shard(ShardOptions{.num_processes = 2, .process_index = 2}), ValueError);
    EXPECT_THROW(loader.shard(ShardOptions{.num_processes = 2, .split_batches = true}), ValueError);
    EXPECT_FALSE(loader.shard_options());
    EXPECT_EQ(pass(loader), (Batches{{0, 1, 2}, {3, 4, 5}}));
}

TEST(ShardedLoader, ReadsItsShareOfANewBatchSamplerAndRejectsNullAndSplittingUnevenBatches) {
    DataLoader loader(from_function(8, sample), {.batch_size = 2});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1, .split_batches = true});
    const auto four =
        std::make_shared<FixedBatchSampler>(std::make_shared<SequentialSampler>(8), 4, false);
    loader.set_batch_sampler(four);
    EXPECT_EQ(loader.batch_sampler(), four);
    EXPECT_EQ(loader.batch_size(), 2);
    EXPECT_EQ(pass(loader), (Batches{{2, 3}, {6, 7}}));
    const auto ragged = std::make_shared<GivenBatches>(Batches{{0}, {1, 2}, {3}});
    EXPECT_THROW(loader.set_batch_sampler(ragged), ValueError);
    EXPECT_EQ(loader.batch_sampler(), four);
    EXPECT_EQ(pass(loader), (Batches{{2, 3}, {6, 7}}));
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    loader.set_batch_sampler(ragged);
    EXPECT_EQ(pass(loader), (Batches{{1, 2}, {0}}));
    EXPECT_THROW(loader.set_batch_sampler(nullptr), UsageError);
    loader.shard(std::nullopt);
    EXPECT_EQ(pass(loader), (Batches{{0}, {1, 2}, {3}}));
}

TEST(ShardedLoader, HasFewerBatchesThanOtherRanksWithoutEvenBatches) {
    DataLoader loader(from_function(5, sample), {.batch_size = 1});
    loader.shard(ShardOptions{.num_processes = 4, .process_index = 3, .even_batches = false});
    EXPECT_EQ(loader.len(), 1);
    loader.skip_first_batches(1);  // process 0 has one batch more than process 3
    EXPECT_EQ(pass(loader), Batches());
    EXPECT_EQ(loader.epoch(), 1);
    EXPECT_EQ(pass(loader), Batches({{3}}));
}

TEST(ShardedLoader, RejectsChangesDuringPass) {
    DataLoader loader(from_function(4, sample), {});
    const auto it = loader.begin();
    EXPECT_THROW(loader.shard(ShardOptions{.num_processes = 2}), UsageError);
    EXPECT_THROW(loader.set_batch_sampler(loader.batch_sampler()), UsageError);
    EXPECT_THROW(skip_first_batches(loader, 1).begin(), UsageError);
    EXPECT_EQ(loader.position(), 1);
}

// --- views that skip, and nested loops

TEST(SkipFirstBatches, SkipsInEveryPassOfViewButNotOfLoader) {
    for (const int workers : {0, 2}) {
        DataLoader loader(from_function(22, sample), {.batch_size = 4, .num_workers = workers});
        const SkipDataLoader view = skip_first_batches(loader, 4);
        EXPECT_EQ(view.len(), 2);
        EXPECT_EQ(&view.loader(), &loader);
        SkipDataLoader passes = view;
        for (int epoch = 0; epoch < 3; ++epoch) {
            EXPECT_EQ(pass(passes), (Batches{{16, 17, 18, 19}, {20, 21}}));
            EXPECT_EQ(pass(loader).size(), 6u);
        }
        EXPECT_EQ(loader.epoch(), 6);
        for ([[maybe_unused]] auto& batch : passes) break;
        EXPECT_EQ(pass(loader).size(), 6u);
    }
}

// Covers 4.skip_first_batches.
TEST(SkipFirstBatches, KeepsRemainderPositionAndValidSamplesOfLoader) {
    DataLoader loader(from_function(22, sample), {.batch_size = 4});
    loader.shard(ShardOptions{.num_processes = 2, .process_index = 1});
    std::vector<std::int64_t> valid;
    for (auto& batch : skip_first_batches(loader, 1)) {
        EXPECT_EQ(loader.remainder(), 6);
        EXPECT_EQ(loader.position(), std::ssize(valid) + 2);
        valid.push_back(loader.valid_samples());
        EXPECT_EQ(loader.end_of_dataloader(), ids_of(batch) == (Ids{20, 21, 0, 1}));
    }
    EXPECT_EQ(valid, (Ids{4, 2}));
}

TEST(SkipFirstBatches, GivesEmptyPassIfAllBatchesAreSkippedAndRejectsNegativeNumbers) {
    DataLoader loader(from_function(6, sample), {.batch_size = 4});
    SkipDataLoader all = skip_first_batches(loader, 2), more = skip_first_batches(loader, 3);
    EXPECT_EQ(all.len(), 0);
    EXPECT_EQ(pass(all), Batches());
    EXPECT_THROW(more.len(), ValueError);
    EXPECT_EQ(pass(more), Batches());
    EXPECT_EQ(loader.epoch(), 2);
    EXPECT_THROW(skip_first_batches(loader, -1), ValueError);
    EXPECT_EQ(pass(skip_first_batches(loader)).size(), 2u);
}

TEST(SkipFirstBatches, SkipsInEveryPassOfAnIterableDataset) {
    const Numbers numbers(10);
    DataLoader loader(numbers, {.batch_size = 4});
    SkipDataLoader view = skip_first_batches(loader, 1);
    EXPECT_EQ(view.len(), 2);
    EXPECT_EQ(pass(view), (Batches{{4, 5, 6, 7}, {8, 9}}));
    EXPECT_EQ(pass(view), (Batches{{104, 105, 106, 107}, {108, 109}}));
    EXPECT_EQ(pass(loader).size(), 3u);
}

TEST(DataLoader, KeepsTheStateOfEachLoopInNestedLoops) {
    for (const int workers : {0, 2}) {
        DataLoader outer(from_function(4, sample), {.batch_size = 2, .num_workers = workers});
        DataLoader inner(from_function(3, sample), {.num_workers = workers});
        std::vector<std::pair<Ids, Ids>> seen;
        for (auto& batch : outer) {
            for (auto& other : inner) seen.emplace_back(ids_of(batch), ids_of(other));
            EXPECT_FALSE(inner.end_of_dataloader());
            EXPECT_EQ(outer.end_of_dataloader(), ids_of(batch)[0] == 2);
            for ([[maybe_unused]] auto& other : inner) break;
        }
        EXPECT_EQ(seen, (std::vector<std::pair<Ids, Ids>>{{{0, 1}, {0}},
                                                          {{0, 1}, {1}},
                                                          {{0, 1}, {2}},
                                                          {{2, 3}, {0}},
                                                          {{2, 3}, {1}},
                                                          {{2, 3}, {2}}}));
        EXPECT_EQ(inner.epoch(), 2);
        EXPECT_EQ(outer.epoch(), 1);
    }
}

// --- hooks

class Recorder : public LoaderHooks {
  public:
    void begin(DataLoader& loader) override {
        log += str("begin ", loader.epoch(), "; ");
        if (fails_in == "begin") throw std::runtime_error("begin");
    }
    void batch(DataLoader& loader, Tree& batch) override {
        log += str("batch ", batch["id"].tensor().to_vector()[0],
                   loader.end_of_dataloader() ? " last; " : "; ");
        if (fails_in == "batch") throw std::runtime_error("batch");
    }
    void end(DataLoader& loader) noexcept override { log += str("end ", loader.epoch(), "; "); }

    std::string log, fails_in;
};

std::string log_of(DataLoader& loader, const char* fails_in, const std::function<void()>& passes) {
    const auto recorder = std::make_shared<Recorder>();
    recorder->fails_in = fails_in;
    loader.set_hooks(recorder);
    try {
        passes();
    } catch (const std::exception& error) {
        recorder->log += str("exception ", error.what(), "; ");
    }
    loader.set_hooks(nullptr);
    return recorder->log;
}

TEST(LoaderHooks, AreCalledInOrderInCompleteInterruptedAndFailedPasses) {
    for (const int workers : {0, 2}) {
        DataLoader loader(from_function(2, sample), {.num_workers = workers});
        const auto whole = [&] { pass(loader); };
        EXPECT_EQ(log_of(loader, "", whole), "begin 0; batch 0; batch 1 last; end 1; ");
        EXPECT_EQ(log_of(loader, "", [&] { loader.begin(); }), "begin 1; batch 0; end 1; ");
        EXPECT_EQ(log_of(loader, "begin", whole), "begin 1; end 1; exception begin; ");
        EXPECT_EQ(log_of(loader, "batch", whole), "begin 1; batch 0; end 1; exception batch; ");
        EXPECT_EQ(log_of(loader, "", [&] { pass(skip_first_batches(loader, 2)); }),
                  "begin 1; end 2; ");
        EXPECT_EQ(log_of(loader, "",
                         [&] {
                             const auto it = loader.begin();
                             loader.begin();
                         }),
                  "begin 2; batch 0; end 2; exception DataLoader: begin is not allowed during a "
                  "pass: a loop over this loader or one of its iterators is still active; ");
        DataLoader empty(from_function(0, sample), {.num_workers = workers, .allow_empty = true});
        EXPECT_EQ(log_of(empty, "", [&] { pass(empty); }), "begin 0; end 0; ");
    }
}

TEST(LoaderHooks, CanChangeSeedAtStartOfPass) {
    class Reseeding : public LoaderHooks {
        void begin(DataLoader& loader) override { loader.generator()->manual_seed(42); }
        void batch(DataLoader&, Tree&) override {}
        void end(DataLoader&) noexcept override {}
    };
    DataLoader loader(from_function(6, sample), {.batch_size = 6, .shuffle = true, .seed = 1});
    loader.set_hooks(std::make_shared<Reseeding>());
    EXPECT_EQ(pass(loader), Batches({{0, 3, 2, 4, 1, 5}}));
}

// --- dispatch

// A simulation of the first of two processes: each step uses two batches of the dataset.
class FirstOfTwo : public Dispatch {
  public:
    std::unique_ptr<Feed> start(DataLoader& loader, std::int64_t steps) override {
        return std::make_unique<Pairs>(loader.read_whole(2 * steps));
    }

  private:
    class Pairs : public Feed {
      public:
        explicit Pairs(std::unique_ptr<Feed> raw) : raw_(std::move(raw)) {}
        std::optional<Batch> next() override {
            std::optional<Batch> batch = raw_->next();
            if (!batch) return std::nullopt;
            batch->real_samples = batch->samples;
            if (!batch->last) {
                const std::optional<Batch> other = raw_->next();
                batch->real_samples += other->samples;
                batch->last = other->last;
            }
            return batch;
        }

      private:
        std::unique_ptr<Feed> raw_;
    };
};

TEST(DispatchedLoader, YieldsBatchesThatItsDispatchReturnsUntilReset) {
    const Numbers numbers(11);
    const FunctionDataset indexed = from_function(11, sample);
    for (const bool iterable : {false, true})
        for (const int workers : {0, 2}) {
            const LoaderOptions options{.batch_size = 2, .num_workers = workers};
            const auto loader = iterable ? std::make_unique<DataLoader>(numbers, options)
                                         : std::make_unique<DataLoader>(indexed, options);
            loader->dispatch(std::make_shared<FirstOfTwo>(), {.num_processes = 2});
            EXPECT_TRUE(loader->is_dispatched());
            EXPECT_EQ(loader->len(), 3);
            EXPECT_EQ(loader->total_batch_size(), 4);
            std::vector<std::int64_t> remainders;
            Batches batches;
            for (auto& batch : *loader) {
                remainders.push_back(loader->remainder());
                batches.push_back(ids_of(batch));
            }
            EXPECT_EQ(batches, (Batches{{0, 1}, {4, 5}, {8, 9}}));
            EXPECT_EQ(remainders, (Ids{-1, -1, 3}));
            loader->set_epoch(0);
            EXPECT_EQ(pass(skip_first_batches(*loader, 1)), (Batches{{4, 5}, {8, 9}}));
            loader->set_epoch(0);
            loader->skip_first_batches(7);
            EXPECT_EQ(pass(*loader), Batches());
            EXPECT_EQ(loader->epoch(), 1);
            loader->shard(std::nullopt);
            EXPECT_FALSE(loader->is_dispatched());
            EXPECT_EQ(pass(*loader).size(), 6u);
        }
}

TEST(DispatchedLoader, ResumesAfterTheSavedStep) {
    DataLoader loader(from_function(16, sample), {.batch_size = 2});
    loader.dispatch(std::make_shared<FirstOfTwo>(), {.num_processes = 2});
    std::vector<Tree> states;
    for ([[maybe_unused]] auto& batch : loader) states.push_back(loader.state_dict());
    ASSERT_EQ(states.size(), 4u);
    DataLoader sharded(from_function(16, sample), {.batch_size = 2});
    sharded.shard(ShardOptions{.num_processes = 2});
    sharded.load_state_dict(states[1]);
    EXPECT_EQ(pass(sharded), (Batches{{8, 9}, {12, 13}}));
    loader.load_state_dict(states[1]);
    EXPECT_EQ(loader.epoch(), 0);
    EXPECT_EQ(pass(loader), (Batches{{8, 9}, {12, 13}}));
    loader.load_state_dict(states[3]);
    EXPECT_EQ(loader.epoch(), 1);
}

TEST(DispatchedLoader, RethrowsExceptionsAndStaysUsable) {
    for (const int workers : {0, 2}) {
        bool broken = true;
        DataLoader loader(from_function(12,
                                        [&](std::int64_t i) {
                                            if (broken && i == 9) throw FileError("truncated");
                                            return sample(i);
                                        }),
                          {.batch_size = 2, .num_workers = workers});
        loader.dispatch(std::make_shared<FirstOfTwo>(), {.num_processes = 2});
        try {
            pass(loader);
            ADD_FAILURE() << "no exception";
        } catch (const FileError& error) {
            EXPECT_STREQ(error.what(), "DataLoader: batch 4: sample 9: truncated");
        }
        broken = false;
        EXPECT_EQ(pass(loader).size(), 3u);
    }
}

TEST(DispatchedLoader, RejectsInvalidArguments) {
    DataLoader loader(from_function(12, sample), {.batch_size = 3});
    EXPECT_THROW(loader.dispatch(nullptr, {}), UsageError);
    const auto dispatch = std::make_shared<FirstOfTwo>();
    EXPECT_THROW(loader.dispatch(dispatch, {.num_processes = 2, .split_batches = true}),
                 ValueError);
    EXPECT_FALSE(loader.is_dispatched());
    loader.dispatch(dispatch, {.num_processes = 3, .split_batches = true});
    EXPECT_EQ(loader.len(), 4);
    EXPECT_THROW(loader.set_batch_sampler(std::make_shared<GivenBatches>(Batches{{0}, {1, 2}})),
                 ValueError);
    EXPECT_EQ(loader.len(), 4);
}

}  // namespace
}  // namespace axle::data
