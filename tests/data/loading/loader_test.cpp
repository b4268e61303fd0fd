#include "data/loading/loader.h"

#include <atomic>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "tests/close.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::Ids, tests::ids_of, tests::pass, tests::sample;

static_assert(std::input_iterator<DataLoader::Iterator>);
static_assert(!std::copyable<DataLoader::Iterator>);

TEST(DataLoader, GivesBatchesInOrder) {
    DataLoader loader(from_function(5, sample), {.batch_size = 2});
    EXPECT_EQ(loader.len(), 3);
    EXPECT_EQ(pass(loader), (std::vector<Ids>{{0, 1}, {2, 3}, {4}}));
    DataLoader dropping(from_function(5, sample), {.batch_size = 2, .drop_last = true});
    EXPECT_EQ(dropping.len(), 2);
    EXPECT_EQ(pass(dropping), (std::vector<Ids>{{0, 1}, {2, 3}}));
}

// Covers 4.set_epoch.
TEST(DataLoader, ShufflesLikeSeedableRandomSampler) {
    DataLoader loader(from_function(6, sample), {.batch_size = 6, .shuffle = true, .seed = 42});
    EXPECT_EQ(pass(loader), (std::vector<Ids>{{0, 3, 2, 4, 1, 5}}));
    EXPECT_EQ(pass(loader), (std::vector<Ids>{{4, 0, 5, 1, 2, 3}}));
    loader.set_epoch(3);
    EXPECT_EQ(pass(loader), (std::vector<Ids>{{5, 2, 0, 1, 4, 3}}));
    EXPECT_EQ(loader.epoch(), 4);
}

// Covers 4.DataLoaderShard.
TEST(DataLoader, SetsEndOfDataloaderDuringLastBatch) {
    for (const int workers : {0, 3}) {
        DataLoader loader(from_function(5, sample), {.batch_size = 2, .num_workers = workers});
        std::vector<bool> ends;
        EXPECT_FALSE(loader.end_of_dataloader());
        for ([[maybe_unused]] auto& batch : loader) ends.push_back(loader.end_of_dataloader());
        EXPECT_EQ(ends, (std::vector<bool>{false, false, true}));
        EXPECT_FALSE(loader.end_of_dataloader());
    }
}

// Covers 4.dataloader.
TEST(DataLoader, GivesSameBatchesForSeveralNumbersOfWorkers) {
    const auto batches = [](int workers, std::optional<int> prefetch) {
        DataLoader loader(
            from_function(50,
                          [](std::int64_t i) {
                              if (i % 7 == 0)  // these samples are ready after later samples
                                  std::this_thread::sleep_for(std::chrono::microseconds(300));
                              return sample(i);
                          }),
            {.batch_size = 3,
             .shuffle = true,
             .num_workers = workers,
             .prefetch_factor = prefetch,
             .seed = 1});
        std::vector<std::vector<Ids>> passes;
        for (int epoch = 0; epoch < 3; ++epoch) passes.push_back(pass(loader));
        return passes;
    };
    const auto expected = batches(0, {});
    for (const int workers : {1, 2, 4, 16})
        for (const int prefetch : {1, 3}) EXPECT_EQ(batches(workers, prefetch), expected);
}

// Covers 4.DataLoaderAdapter, 4.state_dict.
TEST(DataLoader, ResumesExactlyAtEveryBatch) {
    for (const int workers : {0, 1, 4}) {
        const LoaderOptions options{
            .batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 5};
        DataLoader whole(from_function(13, sample), options);
        std::vector<Ids> all;
        std::vector<std::string> states = {to_json(whole.state_dict())};
        for (int epoch = 0; epoch < 3; ++epoch)
            for (auto& batch : whole) {
                all.push_back(ids_of(batch));
                states.push_back(to_json(whole.state_dict()));
            }
        ASSERT_EQ(all.size(), 15u);
        for (std::size_t done = 0; done < states.size(); ++done) {
            DataLoader resumed(from_function(13, sample), options);
            resumed.load_state_dict(from_json(states[done]));
            EXPECT_EQ(to_json(resumed.state_dict()), done % 5 == 0 && done > 0
                                                         ? to_json(Tree{{"epoch", done / 5},
                                                                        {"position", 0},
                                                                        {"finished", false},
                                                                        {"total_batch_size", 3},
                                                                        {"num_processes", 1},
                                                                        {"num_samples", 13},
                                                                        {"seed", 5}})
                                                         : states[done]);
            std::vector<Ids> rest(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(done));
            while (resumed.epoch() < 3)
                for (auto& batch : resumed) rest.push_back(ids_of(batch));
            EXPECT_EQ(rest, all) << workers << " workers, after " << done;
        }
    }
}

TEST(DataLoader, SavesStartOfNextPassBetweenPasses) {
    DataLoader loader(from_function(4, sample), {.batch_size = 2});
    pass(loader);
    EXPECT_EQ(loader.state_dict()["epoch"].integer(), 1);
    EXPECT_EQ(loader.state_dict()["position"].integer(), 0);
}

TEST(DataLoader, SkipsFirstBatchesInTheNextPassOnly) {
    std::atomic<int> made = 0;
    DataLoader loader(from_function(22,
                                    [&](std::int64_t i) {
                                        ++made;
                                        return sample(i);
                                    }),
                      {.batch_size = 4});
    loader.skip_first_batches(3);
    EXPECT_EQ(pass(loader), (std::vector<Ids>{{12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21}}));
    EXPECT_EQ(made, 10);
    EXPECT_EQ(loader.epoch(), 1);
    EXPECT_EQ(pass(loader).size(), 6u);
    loader.skip_first_batches(100);
    EXPECT_EQ(pass(loader).size(), 0u);
    EXPECT_EQ(loader.epoch(), 3);
    EXPECT_THROW(loader.skip_first_batches(-1), ValueError);
    loader.skip_first_batches(2);
    loader.set_epoch(3);  // keeps the position if the epoch does not change
    EXPECT_EQ(loader.position(), 2);
    loader.set_epoch(4);
    EXPECT_EQ(loader.position(), 0);
}

TEST(DataLoader, RejectsStatesWithInvalidPositionsDifferentSizesOrMissingKeys) {
    DataLoader loader(from_function(10, sample), {.batch_size = 2});
    const auto state = [](int position, int total, int samples, int processes = 1) {
        return Tree{{"epoch", 0},
                    {"position", position},
                    {"finished", false},
                    {"total_batch_size", total},
                    {"num_processes", processes},
                    {"num_samples", samples}};
    };
    EXPECT_NO_THROW(loader.load_state_dict(state(5, 2, 10)));
    EXPECT_THROW(loader.load_state_dict(state(6, 2, 10)), ValueError);
    EXPECT_THROW(loader.load_state_dict(state(-1, 2, 10)), ValueError);
    EXPECT_THROW(loader.load_state_dict(state(1, 3, 10)), ValueError);
    EXPECT_THROW(loader.load_state_dict(state(1, 2, 11)), ValueError);
    EXPECT_THROW(loader.load_state_dict(state(1, 2, 10, 0)), ValueError);
    EXPECT_THROW(loader.load_state_dict(Tree{{"epoch", 1}}), IndexError);
    EXPECT_EQ(loader.epoch(), 1);  // a rejected state does not change the loader
    EXPECT_EQ(loader.position(), 0);
    const std::uint64_t large = ~std::uint64_t{0};
    DataLoader seeded(from_function(10, sample), {.shuffle = true, .seed = large});
    EXPECT_NO_THROW(seeded.load_state_dict(from_json(to_json(seeded.state_dict()))));
}

// Covers 4.DataLoaderStateMixin, 30.7.
TEST(DataLoader, ReadsFullPassAfterIncompletePass) {
    for (const int workers : {0, 1, 4}) {
        const LoaderOptions options{.batch_size = 2, .shuffle = true, .num_workers = workers};
        DataLoader fresh(from_function(20, sample), options);
        const auto expected = pass(fresh);
        for (int leave_after = 1; leave_after <= 10; ++leave_after) {
            DataLoader loader(from_function(20, sample), options);
            int seen = 0;
            for ([[maybe_unused]] auto& batch : loader)
                if (++seen == leave_after) break;
            EXPECT_FALSE(loader.end_of_dataloader());
            EXPECT_EQ(to_json(loader.state_dict()),
                      to_json(DataLoader(from_function(20, sample), options).state_dict()));
            EXPECT_EQ(pass(loader), expected);
        }
    }
}

TEST(DataLoader, EndsPassOnExceptionInLoopBody) {
    DataLoader loader(from_function(20, sample), {.num_workers = 2});
    try {
        for ([[maybe_unused]] auto& batch : loader) throw std::runtime_error("stop");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(pass(loader).size(), 20u);
}

TEST(DataLoader, KeepsTypeOfDatasetErrorsAndReportsSample) {
    for (const int workers : {0, 1, 4})
        for (std::int64_t bad = 0; bad < 12; ++bad) {
            std::atomic<bool> broken = true;
            DataLoader loader(from_function(12,
                                            [&](std::int64_t i) {
                                                if (broken && i == bad)
                                                    throw FileError("image.png: truncated");
                                                return sample(i);
                                            }),
                              {.batch_size = 5, .num_workers = workers});
            std::int64_t seen = 0;
            try {
                for ([[maybe_unused]] auto& batch : loader) ++seen;
                ADD_FAILURE() << "no exception";
            } catch (const FileError& e) {
                EXPECT_EQ(std::string(e.what()), str("DataLoader: batch ", bad / 5, ": sample ",
                                                     bad, ": image.png: truncated"));
            }
            EXPECT_EQ(seen, bad / 5);
            broken = false;
            EXPECT_EQ(pass(loader).size(), 3u);
        }
}

// Covers 4.DataLoaderShard.
TEST(DataLoader, RejectsADatasetOfKnownSizeZero) {
    const auto rejects = [](const auto& dataset) {
        expect_error<ValueError>({"DataLoader: the dataset is empty", "allow_empty"},
                                 [&] { DataLoader loader(dataset, {.batch_size = 4}); });
        expect_error<ValueError>({"DataLoader: the dataset is empty", "allow_empty"},
                                 [&] { DataLoader loader(dataset, {.drop_last = true}); });
    };
    rejects(from_function(0, sample));
    rejects(tests::Numbers(0, {.sized = true}));
    // A stream of unknown size is not rejected, even if it is empty.
    const tests::Numbers numbers(0, {.sized = false});
    DataLoader stream(numbers, {});
    EXPECT_TRUE(pass(stream).empty());
}

// Covers 4.DataLoaderShard.
TEST(DataLoader, GivesEmptyPassForEmptyDatasetIfAllowed) {
    for (const int workers : {0, 2}) {
        DataLoader loader(from_function(0, sample),
                          {.shuffle = true, .num_workers = workers, .allow_empty = true});
        EXPECT_EQ(loader.len(), 0);
        EXPECT_TRUE(pass(loader).empty());
        EXPECT_EQ(loader.epoch(), 0);
        loader.load_state_dict(loader.state_dict());
        EXPECT_EQ(loader.epoch(), 0);
        DataLoader dropped(from_function(3, sample),
                           {.batch_size = 4, .drop_last = true, .allow_empty = true});
        EXPECT_TRUE(pass(dropped).empty());
    }
}

// Covers 4.DataLoaderShard.
TEST(DataLoader, RejectsDropLastWithoutAFullBatch) {
    const auto rejects = [](const auto& dataset) {
        expect_error<ValueError>(
            {"DataLoader: drop_last leaves no batch", "3 samples", "batch_size = 4", "allow_empty"},
            [&] { DataLoader loader(dataset, {.batch_size = 4, .drop_last = true}); });
        EXPECT_EQ(DataLoader(dataset, {.batch_size = 3, .drop_last = true}).len(), 1);
        DataLoader allowed(dataset, {.batch_size = 4, .drop_last = true, .allow_empty = true});
        EXPECT_TRUE(pass(allowed).empty());
    };
    rejects(from_function(3, sample));
    rejects(tests::Numbers(3, {.sized = true}));
}

TEST(DataLoader, BindsTheTensorsOfBatchesToTwoNames) {
    DataLoader loader(TensorDataset(Tree{{"x", ones({4, 2})}, {"y", full({4}, 3.0)}}),
                      {.batch_size = 2});
    std::int64_t batches = 0;
    for (auto& [x, y] : loader) {
        EXPECT_EQ(x.shape(), (Shape{2, 2}));
        EXPECT_EQ(sum(y).item(), 6);
        ++batches;
    }
    EXPECT_EQ(batches, 2);
}

TEST(DataLoader, RejectsASecondPassAndChangesDuringAPass) {
    DataLoader loader(from_function(3, sample), {});
    auto it = loader.begin();
    EXPECT_THROW(loader.begin(), UsageError);
    EXPECT_THROW(loader.set_epoch(1), UsageError);
    EXPECT_THROW(loader.skip_first_batches(1), UsageError);
    EXPECT_THROW(loader.load_state_dict(loader.state_dict()), UsageError);
    auto moved = std::move(it);
    EXPECT_EQ(ids_of(*++moved), Ids{1});
    { const auto gone = std::move(moved); }
    EXPECT_EQ(ids_of(*loader.begin()), Ids{0});
    EXPECT_EQ(pass(loader).size(), 3u);
}

// Covers 4.dataloader.
TEST(DataLoader, UsesCollateFnAndThrowsItsExceptions) {
    for (const int workers : {0, 2}) {
        DataLoader loader(from_function(4, sample),
                          {.batch_size = 2,
                           .num_workers = workers,
                           .collate_fn = [](std::span<const Tree> samples) {
                               if (samples[0]["id"].integer() == 2) throw ShapeError("ragged");
                               return Tree{{"n", samples.size()}};
                           }});
        auto it = loader.begin();
        EXPECT_EQ((*it)["n"].integer(), 2);
        try {
            ++it;
            ADD_FAILURE() << "no exception";
        } catch (const ShapeError& e) {
            EXPECT_STREQ(e.what(), "DataLoader: batch 1: ragged");
        }
        EXPECT_TRUE(it == loader.end());
        EXPECT_EQ((*loader.begin())["n"].integer(), 2);
    }
}

TEST(DataLoader, AcceptsCustomSamplers) {
    const auto backwards = std::make_shared<SubsetSampler>(Ids{3, 2, 1, 0});
    DataLoader sampled(from_function(4, sample), {.batch_size = 2, .sampler = backwards});
    EXPECT_EQ(pass(sampled), (std::vector<Ids>{{3, 2}, {1, 0}}));

    struct Growing : BatchSampler {
        std::int64_t size() const override { return 3; }
        BatchOrder order(std::int64_t epoch) const override {
            return [epoch](std::int64_t batch) {
                return Ids(static_cast<std::size_t>(batch + 1), epoch);
            };
        }
    };
    DataLoader grouped(from_function(4, sample), {.batch_sampler = std::make_shared<Growing>()});
    EXPECT_EQ(grouped.batch_size(), 0);
    pass(grouped);
    EXPECT_EQ(pass(grouped), (std::vector<Ids>{{1}, {1, 1}, {1, 1, 1}}));
}

TEST(DataLoader, RejectsInvalidAndContradictoryOptions) {
    const FunctionDataset dataset = from_function(4, sample);
    const auto sampler = std::make_shared<SequentialSampler>(4);
    EXPECT_THROW(DataLoader(dataset, {.batch_size = 0}), ValueError);
    EXPECT_THROW(DataLoader(dataset, {.num_workers = -1}), ValueError);
    EXPECT_THROW(DataLoader(dataset, {.num_workers = 1, .prefetch_factor = 0}), ValueError);
    EXPECT_THROW(DataLoader(dataset, {.prefetch_factor = 2}), ValueError);
    EXPECT_THROW(DataLoader(dataset, {.shuffle = true, .sampler = sampler}), ValueError);
    EXPECT_THROW(DataLoader(dataset, {.batch_size = 2,
                                      .batch_sampler =
                                          std::make_shared<FixedBatchSampler>(sampler, 2, false)}),
                 ValueError);
    EXPECT_THROW(DataLoader(std::shared_ptr<const Dataset>()), UsageError);
}

struct Recorder : LoaderHooks {
    std::string log;
    void begin(DataLoader&) override { log += "("; }
    void batch(DataLoader& loader, Tree& batch) override {
        batch.set("last", loader.end_of_dataloader());
        log += loader.end_of_dataloader() ? "L" : ".";
    }
    void end(DataLoader&) noexcept override { log += ")"; }
};

TEST(DataLoader, ThrowsInTheLoopIfTheLoopDestroysTheLoader) {
    for (const int workers : {0, 2}) {
        const auto recorder = std::make_shared<Recorder>();
        std::optional<DataLoader> loader;
        const auto first_batch = [&](bool leaves) {
            loader.emplace(from_function(6, sample),
                           LoaderOptions{.batch_size = 2, .num_workers = workers});
            loader->set_hooks(recorder);
            Ids ids;
            for (auto& batch : *loader) {
                loader.reset();
                ids = ids_of(batch);
                if (leaves) break;
            }
            return ids;
        };
        expect_error<UsageError>({"DataLoader: the loader was destroyed during a pass"},
                                 [&] { first_batch(false); });
        EXPECT_EQ(first_batch(true), (Ids{0, 1}));
        EXPECT_EQ(recorder->log, "(.)(.)");
    }
}

TEST(DataLoader, CallsHooksInEveryPass) {
    const auto recorder = std::make_shared<Recorder>();
    DataLoader loader(from_function(3, sample), {.num_workers = 1});
    loader.set_hooks(recorder);
    std::vector<bool> last;
    for (auto& batch : loader) last.push_back(batch["last"].boolean());
    EXPECT_EQ(last, (std::vector<bool>{false, false, true}));
    for ([[maybe_unused]] auto& batch : loader) break;
    loader.set_hooks(nullptr);
    pass(loader);
    EXPECT_EQ(recorder->log, "(..L)(.)");
}

}  // namespace
}  // namespace axle::data
