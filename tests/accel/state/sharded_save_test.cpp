// Tests saving the state of sharded models, also in the background, and errors that occur on one
// rank.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "gmock/gmock.h"
#include "tests/accel/prepare/sharded_run.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::expect_same_bits;
using tests::Gpt64;
using tests::Group;
using tests::on_group;
using tests::on_ranks;
using tests::ShardedRun;
using tests::TemporaryFolder;

TEST(ShardedAccelerator, SavesTheFullModelAsynchronously) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    const auto again = clones_of(Gpt64().make(), 1);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        run.train(0, 2, group);
        const nn::StateDict weights = run.accelerator.get_state_dict(run.model);
        run.accelerator.save_state(folder / "state", {.asynchronous = true});
        run.train(2, 4, group);
        run.accelerator.wait_for_saves();
        if (group->rank() != 0) {
            EXPECT_TRUE(weights.empty());
            return;
        }
        const SafetensorsFile file(folder / "state/model.safetensors");
        for (const auto& [name, tensor] : weights) {
            SCOPED_TRACE(name);
            if (file.contains(name)) expect_same_bits(file.tensor(name), tensor);
        }
    });
}

// The saved parts must have the values at the time of the call of save_state(), although training
// changes the values before the parts are written.
TEST(ShardedAccelerator, SavesPartsAsynchronously) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        for (int save = 0; save < 2; ++save) {
            run.train(save, save + 1, group);
            const std::string expected = folder / str("expected_", save);
            const std::string found = folder / str("found_", save);
            constexpr auto kSharded = accel::StateDictType::sharded;
            run.accelerator.save_state(expected, {.state_dict_type = kSharded});
            run.accelerator.save_state(found, {.asynchronous = true, .state_dict_type = kSharded});
            // The background threads and this training communicate at the same time.
            run.train(save + 1, save + 3, group);
            run.accelerator.load_state(found);  // waits for the save
            const std::string file = str("/rank_0000", group->rank(), ".safetensors");
            for (const char* state : {"/pytorch_model_fsdp_0", "/optimizer_0"})
                EXPECT_TRUE(read_file(found + state + file) == read_file(expected + state + file));
        }
    });
}

// One model is saved in parts and one is not. The hooks remove the model that was prepared first.
TEST(StateHooks, CanRemoveTheWeightsOfOneModelIfAnotherIsSavedInParts) {
    for (const bool removes_parts : {true, false}) {
        SCOPED_TRACE(removes_parts ? "removes parts" : "removes whole weights");
        const TemporaryFolder folder(tests::FolderStorage::in_memory);
        auto models = clones_of(Gpt64().make(), 2);
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& sharded = models[at(group)];
            nn::Linear whole(2, 3);
            accel::Accelerator accelerator(on_group(group));
            if (removes_parts) accelerator.prepare(sharded);
            accelerator.prepare_model(whole, {}, true);
            accelerator.prepare(sharded);
            accelerator.register_save_state_pre_hook(
                [](const auto&, std::vector<nn::StateDict>& weights, const std::string&) {
                    ASSERT_EQ(weights.size(), 2u);
                    weights.erase(weights.begin());
                });
            accelerator.save_state(folder / "state",
                                   {.state_dict_type = accel::StateDictType::sharded});
            accelerator.register_load_state_pre_hook(
                [](std::vector<nn::Module*>& loaded, const std::string&) {
                    loaded.erase(loaded.begin());
                });
            accelerator.load_state(folder / "state");
        });
        EXPECT_EQ(std::filesystem::exists(folder / "state/model.safetensors"), removes_parts);
        EXPECT_EQ(std::filesystem::exists(folder / "state/pytorch_model_fsdp_0"), !removes_parts);
        EXPECT_FALSE(std::filesystem::exists(folder / "state/model_1.safetensors"));
        EXPECT_FALSE(std::filesystem::exists(folder / "state/pytorch_model_fsdp_1"));
    }
}

// A file system without space for the parts of rank 1.
class DiskWithoutSpaceForRank1 final : public tests::FaultyFileSystem {
  public:
    DiskWithoutSpaceForRank1() : FaultyFileSystem(file_system(), SIZE_MAX, 0) {}
    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        if (name.find("rank_00001") != std::string::npos) return -ENOSPC;
        return FaultyFileSystem::open(folder, name, flags, mode);
    }
};

// A file system with little free space.
class SmallDisk final : public tests::FaultyFileSystem {
  public:
    SmallDisk() : FaultyFileSystem(file_system(), SIZE_MAX, 0) {}
    std::int64_t free_bytes(const std::string&) override { return 1000; }
};

// The parts are written before the free space for the other files is checked.
TEST(ShardedAccelerator, NeedsNoFreeSpaceForPartsThatAreWritten) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    SmallDisk disk;
    const tests::ReplacedFileSystem replaced(disk);
    on_ranks(2, [&](const Group& group) {
        accel::Accelerator accelerator(on_group(group));
        accelerator.prepare(models[at(group)]);
        accelerator.save_state(folder / "parts",
                               {.state_dict_type = accel::StateDictType::sharded});
        EXPECT_THROW(accelerator.save_state(folder / "whole",
                                            {.state_dict_type = accel::StateDictType::full}),
                     FileError);
    });
}

// If one rank cannot write its part, save_state() or wait_for_saves() throws on all ranks, and no
// checkpoint remains.
TEST(ShardedAccelerator, ThrowsOnAllRanksIfOneRankCannotWriteItsPartAsynchronously) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    DiskWithoutSpaceForRank1 full;
    const tests::ReplacedFileSystem replaced(full);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        run.train(0, 1, group);
        EXPECT_THROW(
            {
                run.accelerator.save_state(
                    folder / "state",
                    {.asynchronous = true, .state_dict_type = accel::StateDictType::sharded});
                run.accelerator.wait_for_saves();
            },
            FileError);
        EXPECT_FALSE(accel::is_checkpoint(folder / "state"));
    });
}

// An object whose state can only be read on rank 0.
struct StateOfRankZero {
    int rank;
    Tree state_dict() const {
        if (rank != 0) throw ValueError("StateOfRankZero: no state on this rank");
        return Tree::map();
    }
    void load_state_dict(const Tree&) {}
};

TEST(ShardedAccelerator, ThrowsTheErrorOfARegisteredObjectOnAllRanks) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        ShardedRun run(models[at(group)], on_group(group));
        StateOfRankZero object{group->rank()};
        run.accelerator.register_for_checkpointing(object);
        const char* text = group->rank() == 1
                               ? "StateOfRankZero: no state on this rank"
                               : "save_state: process 1: StateOfRankZero: no state on this rank";
        for (const bool asynchronous : {false, true}) {
            expect_error<ValueError>({text}, [&] {
                run.accelerator.save_state(folder / "state",
                                           {.asynchronous = asynchronous,
                                            .state_dict_type = accel::StateDictType::sharded});
            });
            EXPECT_FALSE(accel::is_checkpoint(folder / "state"));
        }
    });
}

// The object whose state cannot be saved.
enum class Broken : std::uint8_t { none, optimizer, schedule, dataset };

struct BrokenOptimizer : optim::AdamW {
    BrokenOptimizer(std::vector<Tensor> parameters, const Broken& broken_)
        : AdamW(std::move(parameters)), broken(broken_) {}
    std::span<const char* const> buffer_names() const override {
        if (broken == Broken::optimizer) throw ValueError("BrokenOptimizer: no state");
        return AdamW::buffer_names();
    }
    const Broken& broken;
};

struct BrokenSchedule : optim::LambdaLR {
    BrokenSchedule(optim::Optimizer& optimizer, const Broken& broken_)
        : LambdaLR(optimizer, [](std::int64_t) { return 1.0; }), broken(broken_) {}
    Tree save() const override {
        if (broken == Broken::schedule) throw ValueError("BrokenSchedule: no state");
        return LambdaLR::save();
    }
    const Broken& broken;
};

struct BrokenDataset : data::IterableDataset {
    explicit BrokenDataset(const Broken& broken_) : broken(broken_) {}
    std::unique_ptr<data::Stream> stream(std::int64_t) const override { return nullptr; }
    std::optional<std::int64_t> size() const override {
        if (broken == Broken::dataset) throw ValueError("BrokenDataset: no size");
        return 8;
    }
    const Broken& broken;
};

// The main process saves the states of schedules and loaders. Each process saves its part of an
// optimizer's state.
TEST(ShardedAccelerator, ThrowsTheErrorOfAPreparedObjectOnAllRanks) {
    struct Case {
        Broken object;
        int rank;
        const char* text;
    };
    constexpr Case kCases[] = {{Broken::optimizer, 1, "BrokenOptimizer: no state"},
                               {Broken::schedule, 0, "BrokenSchedule: no state"},
                               {Broken::dataset, 0, "BrokenDataset: no size"}};
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    auto models = clones_of(Gpt64().make(), 2);
    on_ranks(2, [&](const Group& group) {
        Broken broken = Broken::none;
        nn::Gpt& model = models[at(group)];
        BrokenOptimizer optimizer(model.parameters(), broken);
        BrokenSchedule schedule(optimizer, broken);
        data::DataLoader loader(std::make_shared<const BrokenDataset>(broken));
        accel::Accelerator accelerator(on_group(group));
        accelerator.prepare(model, optimizer, schedule, loader);
        accelerator.backward(tests::loss_of(model, 0, *group));
        optimizer.step();
        optimizer.zero_grad();
        for (const auto type : {accel::StateDictType::sharded, accel::StateDictType::full})
            for (const bool asynchronous : {false, true}) {
                const std::string path =
                    folder / str("state", static_cast<int>(type), asynchronous);
                const accel::SaveStateOptions options{.asynchronous = asynchronous,
                                                      .state_dict_type = type};
                for (const Case& c : kCases) {
                    broken = group->rank() == c.rank ? c.object : Broken::none;
                    const std::string text =
                        (group->rank() == c.rank ? "" : str("save_state: process ", c.rank, ": ")) +
                        std::string(c.text);
                    expect_error<ValueError>({text.c_str()},
                                             [&] { accelerator.save_state(path, options); });
                    EXPECT_FALSE(accel::is_checkpoint(path));
                }
                broken = Broken::none;
                accelerator.save_state(path, options);
                accelerator.wait_for_saves();
                EXPECT_TRUE(accel::is_checkpoint(path));
            }
    });
}

}  // namespace
}  // namespace axle
