// Tests project folders and the states in them: their numbers, which of them are removed, and which
// processes write them. Also tests the memory that load_state() needs, and unwrap_model().
#include "accel/config/project.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "core/files/file.h"
#include "core/memory/memory.h"
#include "gmock/gmock.h"
#include "tests/accel/training.h"
#include "tests/dist/launch/child.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using accel::HookHandle;
using Group = std::shared_ptr<dist::ProcessGroup>;
using Models = std::vector<nn::Module*>;
using Weights = std::vector<nn::StateDict>;

accel::AcceleratorOptions in_project(const TemporaryFolder& folder,
                                     std::optional<int> total_limit = {}) {
    accel::AcceleratorOptions options;
    options.project_config = {.project_dir = folder.path(),
                              .automatic_checkpoint_naming = true,
                              .total_limit = total_limit};
    return options;
}

// Covers 1.project_dir, 1.project_config, 1.logging_dir, 2.project_dir, 2.project_configuration,
// 10.ProjectConfiguration.project_dir, 2.logging_dir, 10.ProjectConfiguration.logging_dir.
TEST(ProjectConfiguration, UsesTheProjectFolderForLogsByDefaultAndRejectsConflictingFolders) {
    Accelerator plain({.project_dir = "a"});
    EXPECT_EQ(plain.project_dir(), "a");
    EXPECT_EQ(plain.logging_dir(), "a");
    Accelerator apart({.project_dir = "a", .logging_dir = "b"});
    EXPECT_EQ(apart.logging_dir(), "b");
    Accelerator configured({.project_dir = "a", .project_config = {.project_dir = "a"}});
    EXPECT_EQ(configured.project_configuration().project_dir, "a");
    EXPECT_EQ(configured.logging_dir(), "a");
    accel::ProjectConfiguration both;
    both.set_directories("c");
    EXPECT_EQ(Accelerator({.project_config = both}).logging_dir(), "c");
    expect_error<UsageError>(
        {"Accelerator: project_dir and project_config.project_dir must be equal: 'a', 'b'"},
        [] { Accelerator({.project_dir = "a", .project_config = {.project_dir = "b"}}); });
    expect_error<UsageError>(
        {"Accelerator: logging_dir and project_config.logging_dir must be equal: 'a', 'b'"},
        [] { Accelerator({.logging_dir = "a", .project_config = {.logging_dir = "b"}}); });
}

// Covers 10.automatic_checkpoint_naming, 10.total_limit.
TEST(ProjectConfiguration, RejectsInvalidOptions) {
    expect_error<ValueError>({"Accelerator: automatic_checkpoint_naming needs project_dir"}, [] {
        Accelerator({.project_config = {.automatic_checkpoint_naming = true}});
    });
    expect_error<ValueError>({"Accelerator: project_config.total_limit must be at least 1: 0"},
                             [] { Accelerator({.project_config = {.total_limit = 0}}); });
    expect_error<ValueError>({"Accelerator: project_config.best_limit must not be negative: -1"},
                             [] { Accelerator({.project_config = {.best_limit = -1}}); });
    expect_error<ValueError>({"Accelerator: project_config.iteration must not be negative: -1"},
                             [] { Accelerator({.project_config = {.iteration = -1}}); });
}

// Covers 3.save_state, 3.load_state, 10.iteration.
TEST(SaveAndLoadState, RejectMissingDirectoriesInvalidDevicesAndNegativeIterations) {
    Accelerator plain;
    expect_error<ValueError>({"save_state: a directory is needed"}, [&] { plain.save_state(); });
    expect_error<ValueError>({"load_state: a directory is needed"}, [&] { plain.load_state(); });
    expect_error<ValueError>({"load_state: map_location", "'cuda'"},
                             [&] { plain.load_state("s", {.map_location = "cuda"}); });
    expect_error<ValueError>({"set_save_iteration", "-3"}, [&] { plain.set_save_iteration(-3); });
}

// Covers 2.project_dir, 10.iteration, 3.save_state, 3.load_state, 30.11, 2.save_iteration.
TEST(ProjectConfiguration, ContinuesNumberingAfterTheLoadedCheckpointAndRejectsExistingNumbers) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    {
        Accelerator first(in_project(folder));
        EXPECT_EQ(first.save_state("ignored"), folder / "checkpoints/checkpoint_0");
        first.save_state();
        EXPECT_FALSE(fs::exists("ignored"));
    }
    Accelerator second(in_project(folder));
    expect_error<ValueError>({"save_state: ", "checkpoint_0 already exists"},
                             [&] { second.save_state(); });
    second.load_state();
    EXPECT_EQ(second.save_iteration(), 2);
    EXPECT_EQ(second.save_state(), folder / "checkpoints/checkpoint_2");
    second.set_save_iteration(9);
    EXPECT_EQ(second.save_state(), folder / "checkpoints/checkpoint_9");
    second.set_save_iteration(10);
    second.save_state();
    Accelerator third(in_project(folder));
    third.load_state();  // selects the highest number, not the alphabetically last name
    EXPECT_EQ(third.project_configuration().iteration, 11);
    third.load_state(folder / "checkpoints/checkpoint_1");
    EXPECT_EQ(third.save_iteration(), 2);
}

TEST(ProjectConfiguration, CountsIterationsWithoutAutomaticNaming) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Accelerator accelerator({.project_config = {.iteration = 4}});
    accelerator.save_state(folder / "a");
    EXPECT_EQ(accelerator.save_iteration(), 5);
    EXPECT_EQ(accel::CheckpointReader(folder / "a").label().iteration, 4);
}

TEST(LoadState, ThrowsFileErrorIfTheProjectHasNoCheckpoint) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Accelerator accelerator(in_project(folder));
    const std::string checkpoints = folder / "checkpoints";
    expect_error<FileError>({"load_state: ", checkpoints.c_str(), "contains no checkpoint"},
                            [&] { accelerator.load_state(); });
    create_directories(checkpoints + "/checkpoint_5");
    create_directories(checkpoints + "/.checkpoint-7");
    expect_error<FileError>({"load_state: ", checkpoints.c_str(), "contains no checkpoint"},
                            [&] { accelerator.load_state(); });
}

// Covers 10.total_limit, 30.11.
TEST(ProjectConfiguration, RemovesOldCheckpointsAfterTheNewOneIsComplete) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Accelerator accelerator(in_project(folder, 2));
    const std::string checkpoints = folder / "checkpoints/";
    for (int i = 0; i < 3; ++i) accelerator.save_state();
    write_file_atomically(checkpoints + "notes", "mine");
    create_directories(checkpoints + "run_0");
    // A failed save must not remove older checkpoints.
    const HookHandle failing = accelerator.register_save_state_pre_hook(
        [](const Models&, Weights&, const std::string&) { throw ValueError("not today"); });
    expect_error<ValueError>({"not today"}, [&] { accelerator.save_state(); });
    EXPECT_TRUE(fs::exists(checkpoints + "checkpoint_1"));
    EXPECT_TRUE(fs::exists(checkpoints + "checkpoint_2"));
    HookHandle(failing).remove();
    accelerator.save_state();
    for (const char* kept : {"checkpoint_2", "checkpoint_3", "notes", "run_0"})
        EXPECT_TRUE(fs::exists(checkpoints + kept)) << kept;
    EXPECT_FALSE(fs::exists(checkpoints + "checkpoint_1"));
    // The checkpoint that was saved last is the newest, even if its number is lower.
    accelerator.set_save_iteration(0);
    accelerator.save_state();
    EXPECT_TRUE(fs::exists(checkpoints + "checkpoint_0"));
    EXPECT_FALSE(fs::exists(checkpoints + "checkpoint_2"));
}

// Runs f(rank) on two ranks that simulate two machines.
void on_two_machines(const std::function<void(int rank)>& f) {
    const std::string port = std::to_string(free_port());
    const auto machine = [&](int rank) {
        return [&f, &port, rank] {
            setenv("MASTER_ADDR", "127.0.0.1", 1);
            setenv("MASTER_PORT", port.c_str(), 1);
            setenv("WORLD_SIZE", "2", 1);
            setenv("LOCAL_WORLD_SIZE", "1", 1);
            setenv("LOCAL_RANK", "0", 1);
            setenv("RANK", std::to_string(rank).c_str(), 1);
            try {
                f(rank);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "on machine " << rank << ": " << error.what();
            }
            if (testing::Test::HasFailure()) throw std::runtime_error("failed");
        };
    };
    Child first(machine(0)), second(machine(1));
    EXPECT_EQ(first.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
}

// Covers 10.save_on_each_node, 31.save.
TEST(SaveOnEachNode, WritesOncePerMachineInsteadOfOncePerJob) {
    for (const bool each : {false, true}) {
        const TemporaryFolder folder(FolderStorage::in_memory);
        on_two_machines([&](int rank) {
            Counter counter;
            accel::AcceleratorOptions options{.cpu = true};
            options.project_config = {.project_dir = folder / str("node", rank),
                                      .automatic_checkpoint_naming = true,
                                      .total_limit = 1,
                                      .save_on_each_node = each};
            Accelerator accelerator(options);
            accelerator.register_for_checkpointing(counter);
            counter.batches = 3;
            accelerator.save_state();
            const std::string path = accelerator.save_state();
            EXPECT_EQ(path, folder / str("node", each ? rank : 0, "/checkpoints/checkpoint_1"));
            EXPECT_EQ(fs::exists(folder / str("node", rank)), each || rank == 0);
            counter.batches = 0;
            accelerator.load_state(path);
            EXPECT_EQ(counter.batches, 3);
            EXPECT_EQ(accelerator.save_iteration(), 2);
        });
        EXPECT_TRUE(fs::exists(folder / "node0/checkpoints/checkpoint_1/random_states_1.json"));
        EXPECT_FALSE(fs::exists(folder / "node0/checkpoints/checkpoint_0"));
        EXPECT_EQ(fs::exists(folder / "node1/checkpoints/checkpoint_1/random_states_1.json"), each);
    }
}

// Rank 1 deletes its copy of the last state. This simulates a failure of its machine before the
// copy was written.
TEST(ProjectConfiguration, LoadsTheNewestCheckpointThatExistsOnAllMachines) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    on_two_machines([&](int rank) {
        accel::AcceleratorOptions options{.cpu = true};
        options.project_config = {.project_dir = folder / str("node", rank),
                                  .automatic_checkpoint_naming = true,
                                  .save_on_each_node = true};
        Accelerator accelerator(options);
        accelerator.save_state();
        const std::string path = accelerator.save_state();
        if (rank == 1) fs::remove_all(path);
        accelerator.wait_for_everyone();
        accelerator.load_state();
        EXPECT_EQ(accelerator.save_iteration(), 1);
        // A state that exists on only one machine is from an interrupted save, and may be replaced.
        EXPECT_EQ(accelerator.save_state(), path);
        accelerator.load_state();
        EXPECT_EQ(accelerator.save_iteration(), 2);
    });
}

TEST(ProjectConfiguration, KeepsOldCheckpointsIfASaveFailsOnOneMachine) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    on_two_machines([&](int rank) {
        accel::AcceleratorOptions options{.cpu = true};
        options.project_config = {.project_dir = folder / str("node", rank),
                                  .automatic_checkpoint_naming = true,
                                  .total_limit = 1,
                                  .save_on_each_node = true};
        Accelerator accelerator(options);
        accelerator.save_state();
        // One machine fails in the last step of the save.
        accelerator.register_save_state_pre_hook(
            [&](const Models&, Weights&, const std::string& directory) {
                if (rank == 1) write_file_atomically(directory + "/manifest.json", "{}");
            });
        EXPECT_THROW(accelerator.save_state(), FileError);
        accelerator.load_state();
        EXPECT_EQ(accelerator.save_iteration(), 1);
    });
}

// Covers 30.12.
TEST(LoadState, NeedsNoSecondCopyOfTheWeights) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    nn::Linear wide(1024, 1024);
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(wide);
    accelerator.save_state(folder / "s");
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().current;
    accelerator.load_state(folder / "s");
    EXPECT_LT(host_memory::stats().peak - before, wide.weight.numel() * 2);
    EXPECT_EQ(wide.weight.device(), Device::cpu());
}

// Covers 32.parameters, 3.unwrap_model.
TEST(UnwrapModel, ReturnsTheModelThatWasPrepared) {
    SmallNet net, other;
    Accelerator accelerator;
    SmallNet& prepared = accelerator.prepare(net);
    EXPECT_EQ(&accelerator.unwrap_model(prepared), &net);
    accelerator.unwrap_model(prepared).load_state_dict(other.state_dict());
    expect_same_bits(prepared.in.weight, other.in.weight);
    prepared.eval();
    other.eval();
    EXPECT_EQ(prepared(ones({1, 4})).item(), other(ones({1, 4})).item());
}

}  // namespace
}  // namespace axle::tests
