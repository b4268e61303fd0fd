// Tests loops over prepared loaders: the active loader, the samples of each rank, free_memory(),
// and rejected options.
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/log.h"
#include "dist/group/mesh.h"
#include "optim/sgd.h"
#include "tests/accel/loading/loaders.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using accel::DataLoaderConfiguration;
using tests::Batches;
using tests::expect_error;
using tests::numbers;
using tests::of_group;
using tests::on_ranks;
using tests::pass_of;
using tests::range;
using tests::Rows;
using tests::rows_of;
using tests::stream_of_numbers;
using Group = std::shared_ptr<dist::ProcessGroup>;

// --- nested loops

TEST(ActiveDataloader, IsTheLoaderOfTheInnermostLoopAndDeterminesValidRows) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group));
        data::DataLoader outer(numbers(5), {.batch_size = 2}), inner(numbers(7), {.batch_size = 3});
        accelerator.prepare(outer, inner);
        EXPECT_EQ(accelerator.active_dataloader(), nullptr);
        EXPECT_EQ(accelerator.valid_rows(2), 2);
        std::vector<std::int64_t> valid, valid_within;
        for (auto& batch : outer) {
            EXPECT_EQ(accelerator.active_dataloader(), &outer);
            for (auto& rows : inner) {
                EXPECT_EQ(accelerator.active_dataloader(), &inner);
                valid_within.push_back(accelerator.valid_rows(rows.tensor().size(0)));
            }
            EXPECT_EQ(accelerator.active_dataloader(), &outer);
            valid.push_back(accelerator.valid_rows(batch.tensor().size(0)));
            EXPECT_EQ(accelerator.valid_rows(100), 100);  // 100 is not the size of this batch
        }
        EXPECT_EQ(accelerator.active_dataloader(), nullptr);
        // Rows by step: in the outer loop, rank 0 has (0, 1) and (4, 0), and rank 1 has (2, 3) and
        // (1, 2). In the inner loop, rank 0 has (0, 1, 2) and (6, 0, 1), and rank 1 has (3, 4, 5)
        // and (2, 3, 4).
        const bool first = group->rank() == 0;
        EXPECT_EQ(valid, (Rows{2, first ? 1 : 0}));
        EXPECT_EQ(valid_within, first ? (Rows{3, 1, 3, 1}) : (Rows{3, 0, 3, 0}));
    });
}

// Covers 4.DataLoaderStateMixin.
TEST(ActiveDataloader, IsTheOuterLoaderAfterTheInnerLoopIsInterrupted) {
    Accelerator accelerator({.cpu = true});
    data::DataLoader train(numbers(5)), evaluation(numbers(9));
    accelerator.prepare(train, evaluation);
    for ([[maybe_unused]] auto& batch : train) {
        for ([[maybe_unused]] auto& rows : evaluation) break;
        EXPECT_EQ(accelerator.active_dataloader(), &train);
        try {
            for ([[maybe_unused]] auto& rows : evaluation) throw std::runtime_error("within");
        } catch (const std::runtime_error&) {
        }
        EXPECT_EQ(accelerator.active_dataloader(), &train);
    }
    EXPECT_EQ(accelerator.active_dataloader(), nullptr);
}

// Covers 30.7.
TEST(Accumulation, CompletesUpdatesAfterInterruptedEvaluations) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    data::DataLoader train(numbers(5)), evaluation(numbers(9));
    accelerator.prepare(train, evaluation);
    for (int epoch = 0; epoch < 2; ++epoch) {
        std::string syncs;
        for ([[maybe_unused]] auto& batch : train) {
            for ([[maybe_unused]] auto& rows : evaluation) break;
            const auto scope = accelerator.accumulate();
            syncs += accelerator.sync_gradients() ? 'T' : 'F';
            for ([[maybe_unused]] auto& rows : evaluation) break;
            EXPECT_EQ(accelerator.sync_gradients(), syncs.back() == 'T');
        }
        EXPECT_EQ(syncs, "FTFTT");
    }
}

// --- options of prepare()

TEST(PreparedLoader, YieldsTheSameBatchesWhenPreparedTwice) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group));
        data::DataLoader loader(numbers(8), {.batch_size = 2});
        accelerator.prepare(loader);
        const Batches first = pass_of(loader);
        accelerator.prepare(loader, loader);
        EXPECT_EQ(pass_of(loader), first);
        accelerator.prepare_data_loader(loader, false);
        EXPECT_EQ(pass_of(loader), first);
        EXPECT_EQ(loader.len(), 2);
        EXPECT_EQ(loader.total_batch_size(), 4);
    });
}

// Covers 4.prepare_data_loader.
TEST(PrepareDataLoader, YieldsTheBatchesOfAcceleratorPrepareButDoesNotSetTheActiveLoader) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group));
        data::DataLoader one(numbers(7), {.batch_size = 2}), other(numbers(7), {.batch_size = 2});
        accelerator.prepare(one);
        EXPECT_EQ(&accel::prepare_data_loader(other, group), &other);
        EXPECT_EQ(pass_of(one), pass_of(other));
        for ([[maybe_unused]] auto& batch : other)
            EXPECT_EQ(accelerator.active_dataloader(), nullptr);
    });
}

TEST(FreeMemory, RemovesShardingAndDispatchingFromLoadersButThrowsInTheirLoops) {
    on_ranks(2, [](const Group& group) {
        for (const bool dispatches : {false, true}) {
            Accelerator accelerator(of_group(group, {.dispatch_batches = dispatches}));
            data::DataLoader loader(numbers(5), {.batch_size = 2});
            accelerator.prepare(loader);
            EXPECT_EQ(loader.total_batch_size(), 4);
            for ([[maybe_unused]] auto& batch : loader)
                EXPECT_THROW(accelerator.free_memory(), UsageError);
            EXPECT_EQ(loader.total_batch_size(), 4);
            accelerator.free_memory();
            EXPECT_FALSE(loader.is_dispatched());
            EXPECT_EQ(loader.total_batch_size(), 2);
            EXPECT_EQ(pass_of(loader), (Batches{{0, 1}, {2, 3}, {4}}));
        }
    });
}

// Covers 4.use_seedable_sampler.
TEST(PreparedLoader, RestoresItsSeedOnFreeMemory) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group, {.use_seedable_sampler = true, .data_seed = 42}));
        const auto seed = static_cast<std::uint64_t>(group->rank()) + 1;
        const data::LoaderOptions options{.batch_size = 2, .shuffle = true, .seed = seed};
        data::DataLoader loader(numbers(9), options), same(numbers(9), options),
            sibling(numbers(9), {.batch_sampler = loader.batch_sampler()});
        accelerator.prepare(loader, sibling);
        EXPECT_EQ(loader.generator()->initial_seed(), 42);
        EXPECT_NE(pass_of(loader), pass_of(same));
        accelerator.free_memory();
        EXPECT_EQ(loader.generator()->initial_seed(), seed);
        loader.set_epoch(0);
        same.set_epoch(0);
        EXPECT_EQ(pass_of(loader), pass_of(same));
    });
}

// Covers 4.dataloader.
TEST(PreparedLoader, KeepsWorkersAndCollateFn) {
    on_ranks(2, [](const Group& group) {
        const std::int64_t first = 2 * group->rank();
        Batches expected;
        for (std::int64_t i = first; i < 12; i += 4) expected.push_back({10 * i, 10 * (i + 1)});
        for (const bool dispatches : {false, true})
            for (const int workers : {0, 1, 4})
                for (const int prefetch : {1, 3}) {
                    SCOPED_TRACE(str(dispatches, ", ", workers, " workers, ", prefetch));
                    std::mutex mutex;
                    std::set<std::thread::id> threads;  // the threads that read samples
                    data::DataLoader loader(
                        data::from_function(12,
                                            [&](std::int64_t i) {
                                                const std::lock_guard lock(mutex);
                                                threads.insert(std::this_thread::get_id());
                                                return Tree(i);
                                            }),
                        {.batch_size = 2,
                         .num_workers = workers,
                         .collate_fn =
                             [](std::span<const Tree> samples) {
                                 std::vector<std::int64_t> rows;
                                 for (const Tree& sample : samples)
                                     rows.push_back(10 * sample.integer());
                                 const auto size = static_cast<std::int64_t>(rows.size());
                                 return Tree(tensor(rows, {size}));
                             },
                         .prefetch_factor = workers > 0 ? std::optional(prefetch) : std::nullopt});
                    Accelerator accelerator(of_group(group, {.dispatch_batches = dispatches}));
                    accelerator.prepare(loader);
                    EXPECT_EQ(pass_of(loader), expected);
                    EXPECT_EQ(pass_of(loader), expected);
                    const std::lock_guard lock(mutex);
                    const bool reads = !dispatches || group->rank() == 0;
                    EXPECT_EQ(threads.contains(std::this_thread::get_id()), reads && workers == 0);
                    EXPECT_EQ(threads.empty(), !reads);
                }
    });
}

// Covers 4.even_batches.
TEST(PreparedLoader, YieldsUnevenBatchesIfEvenBatchesIsFalse) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group, {.even_batches = false}));
        data::DataLoader loader(numbers(5), {.batch_size = 2});
        accelerator.prepare(loader);
        EXPECT_EQ(pass_of(loader), group->rank() == 0 ? (Batches{{0, 1}, {4}}) : (Batches{{2, 3}}));
    });
}

// Covers 4.split_batches.
TEST(PreparedLoader, RejectsSplittingBatchesOfAnIndivisibleSizeOnEveryRank) {
    on_ranks(2, [](const Group& group) {
        for (const bool dispatches : {false, true})
            for (const bool iterable : {false, true})
                for (const std::int64_t batch_size : {1, 3}) {
                    Accelerator accelerator(
                        of_group(group, {.split_batches = true, .dispatch_batches = dispatches}));
                    const auto loader =
                        tests::loader_of_numbers(8, iterable, {.batch_size = batch_size});
                    const std::string sizes = str("batch size ", batch_size, ", 2 processes");
                    const std::string who = str("process ", group->rank(), " of 2");
                    for (int again = 0; again < 2; ++again)
                        expect_error<ValueError>(
                            {"prepare_data_loader: ", who.c_str(), "split_batches", sizes.c_str()},
                            [&] { accelerator.prepare(*loader); });
                    EXPECT_EQ(pass_of(*loader).size(), batch_size == 1 ? 8U : 3U);
                }
    });
}

// A user-defined batch sampler. Its last batch is shorter than the other batches.
class PairsAndOne : public data::BatchSampler {
  public:
    std::int64_t size() const override { return 3; }
    data::BatchOrder order(std::int64_t) const override {
        return [](std::int64_t i) { return i == 2 ? Rows{4} : range(2 * i, 2 * i + 2); };
    }
};

// Covers 4.split_batches.
TEST(PreparedLoader, RejectsSplittingBatchesOfVaryingSize) {
    for (const int processes : {1, 2})
        on_ranks(processes, [](const Group& group) {
            Accelerator accelerator(of_group(group, {.split_batches = true}));
            data::DataLoader loader(numbers(5), {.batch_sampler = std::make_shared<PairsAndOne>()});
            expect_error<ValueError>({"prepare_data_loader: ", "a fixed batch size"},
                                     [&] { accelerator.prepare(loader); });
        });
}

// Covers 4.dispatch_batches.
TEST(PreparedLoader, RejectsInvalidAndContradictoryOptions) {
    expect_error<UsageError>({"Accelerator: split_batches"}, [] {
        const Accelerator accelerator(
            {.split_batches = true, .cpu = true, .dataloader_config = DataLoaderConfiguration{}});
    });
    const Accelerator both({.split_batches = true,
                            .cpu = true,
                            .dataloader_config = DataLoaderConfiguration{.split_batches = true}});
    EXPECT_TRUE(both.dataloader_config().split_batches);
    expect_error<ValueError>({"rng_types: ", "torch, cuda or generator", "'numpy'"}, [] {
        const Accelerator accelerator({.cpu = true, .rng_types = {"generator", "numpy"}});
    });
    data::DataLoader loader(numbers(4));
    expect_error<ValueError>({"prepare_data_loader: dispatch_batches", "put_on_device"}, [&] {
        accel::prepare_data_loader(loader, dist::ProcessGroup::alone(),
                                   {.put_on_device = false, .config = {.dispatch_batches = true}});
    });
    Accelerator dispatching(of_group(nullptr, {.dispatch_batches = true}));
    expect_error<ValueError>({"prepare_data_loader: dispatch_batches"},
                             [&] { dispatching.prepare_data_loader(loader, false); });
}

// Covers 4.dispatch_batches, 31.dispatch_batches.
TEST(PreparedLoader, DispatchesIterableDatasetsOnlyIfPutOnDeviceIsTrue) {
    on_ranks(2, [](const Group& group) {
        data::DataLoader loader(stream_of_numbers(4), {.batch_size = 2});
        accel::prepare_data_loader(loader, group);
        EXPECT_TRUE(loader.is_dispatched());
        accel::prepare_data_loader(loader, group, {.put_on_device = false});
        EXPECT_FALSE(loader.is_dispatched());
        EXPECT_EQ(pass_of(loader), (Batches{range(2 * group->rank(), 2 * group->rank() + 2)}));
    });
}

// The loader shuffles, so that each epoch has a different order.
TEST(PreparedLoader, UsesTheSameEpochOnAllRanksAfterInterruptedLoops) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator(of_group(group, {.even_batches = false}));
        data::DataLoader loader(numbers(18), {.batch_size = 4, .shuffle = true, .seed = 5});
        accelerator.prepare(loader);
        // Rank 0 leaves its loop at its third and last batch, so its epoch does not end. Rank 1 has
        // only two batches, so its epoch ends.
        int steps = 0;
        for ([[maybe_unused]] auto& batch : loader)
            if (++steps == 3) break;
        EXPECT_EQ(loader.epoch(), group->rank());
        Tree mine = Tree::list();
        for (const Rows& rows : pass_of(loader))
            for (const std::int64_t row : rows) mine.push_back(row);
        std::vector<std::int64_t> seen;
        for (const Tree& rows : group->all_gather_object(mine))
            for (const Tree& row : rows.elements()) seen.push_back(row.integer());
        EXPECT_THAT(seen, testing::UnorderedElementsAreArray(range(0, 18)));
        EXPECT_EQ(loader.epoch(), 1);
    });
}

// --- meshes

// Returns the data rank of each rank of a mesh.
std::vector<accel::DataRank> data_ranks(const dist::DeviceMesh& mesh) {
    std::vector<accel::DataRank> places;
    places.reserve(static_cast<std::size_t>(mesh.group()->size()));
    for (int rank = 0; rank < mesh.group()->size(); ++rank)
        places.push_back(accel::data_rank(mesh, rank));
    return places;
}

// Covers 4.device, 4.num_processes, 4.process_index.
TEST(DataRank, DependsOnlyOnDataParallelDimensions) {
    on_ranks(16, [](const Group& group) {
        const dist::DeviceMesh mesh(
            group, {{"dp_replicate", 2}, {"dp_shard", 2}, {"cp", 2}, {"sp", 1}, {"tp", 2}});
        if (group->rank() != 0) return;
        int rank = 0;
        for (const accel::DataRank& place : data_ranks(mesh)) {
            EXPECT_EQ(place.index, rank / 4);
            EXPECT_EQ(place.count, 4);
            EXPECT_EQ(place.is_first, rank % 4 == 0);
            ++rank;
        }
    });
}

TEST(DataRank, IsTheIndexInTheDpDimensionWhenDpIsTheLastDimension) {
    on_ranks(4, [](const Group& group) {
        const dist::DeviceMesh mesh(group, {{"tp", 2}, {"dp", 2}});
        const accel::DataRank place = accel::data_rank(mesh);
        EXPECT_EQ(place.index, group->rank() % 2);
        EXPECT_EQ(place.count, 2);
        EXPECT_EQ(place.is_first, group->rank() < 2);
    });
}

TEST(PreparedLoader, RejectsAMeshWithProcessesOutsideItsGroup) {
    on_ranks(2, [](const Group& group) {
        const auto mesh = std::make_shared<dist::DeviceMesh>(
            group, std::vector<dist::DeviceMesh::Dimension>{{"dp", 2}});
        const Group alone = group->split(group->rank());
        data::DataLoader loader(numbers(4));
        expect_error<ValueError>(
            {"prepare_data_loader: the mesh must have the processes of the group"},
            [&] { accel::prepare_data_loader(loader, alone, {.device_mesh = mesh}); });
        EXPECT_EQ(pass_of(loader).size(), 4U);
    });
}

// Covers 4.device, 4.num_processes, 4.process_index.
TEST(PreparedLoader, YieldsTheSameBatchesOnRanksWithTheSameDataRank) {
    on_ranks(4, [](const Group& group) {
        const auto mesh = std::make_shared<dist::DeviceMesh>(
            group, std::vector<dist::DeviceMesh::Dimension>{{"dp_shard", 2}, {"tp", 2}});
        for (const bool dispatches : {false, true}) {
            accel::AcceleratorOptions options = of_group(group, {.dispatch_batches = dispatches});
            options.device_mesh = mesh;
            Accelerator accelerator(options);
            data::DataLoader loader(numbers(7), {.batch_size = 2});
            accelerator.prepare(loader);
            EXPECT_EQ(loader.total_batch_size(), 4);
            EXPECT_EQ(loader.len(), 2);
            Batches own, all;
            for (auto& batch : loader) {
                own.push_back(rows_of(batch));
                all.push_back(rows_of(accelerator.gather_for_metrics(batch)));
            }
            EXPECT_EQ(own,
                      group->rank() < 2 ? (Batches{{0, 1}, {4, 5}}) : (Batches{{2, 3}, {6, 0}}));
            EXPECT_EQ(all, (Batches{{0, 1, 2, 3}, {4, 5, 6}}));
        }
    });
}

}  // namespace
}  // namespace axle
