// Tests the identity of a run, damaged and best checkpoints, the owner of a folder, durability and
// the working directory, through save_state() and load_state().
#include <filesystem>
#include <fstream>
#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/accelerator.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "tests/accel/state/checkpoint_files.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/fork.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using accel::Accelerator;
using tests::expect_error;
using tests::TemporaryFolder;

accel::AcceleratorOptions in_project(const TemporaryFolder& folder,
                                     accel::ProjectConfiguration project = {}) {
    project.project_dir = folder.path();
    project.automatic_checkpoint_naming = true;
    return {.cpu = true, .project_config = std::move(project)};
}

std::string saved(const TemporaryFolder& folder, int number) {
    return folder / str("checkpoints/checkpoint_", number);
}

TEST(RunIdentity, IsRejectedIfItDiffersFromTheCheckpoint) {
    const TemporaryFolder folder;
    Accelerator first(
        {.cpu = true, .project_config = {.identity = {{"seed", "1"}, {"model", "gpt2"}}}});
    first.save_state(folder / "c");
    const auto resume = [&](accel::ProjectConfiguration project, accel::LoadStateOptions options) {
        Accelerator second({.cpu = true, .project_config = std::move(project)});
        options.check_identity = true;
        second.load_state(folder / "c", options);
    };
    EXPECT_NO_THROW(resume({.identity = {{"model", "gpt2"}, {"seed", "1"}}}, {}));
    expect_error<ValueError>(
        {"load_state: ", (folder / "c").c_str(), "seed: saved '1', now '2'",
         "width: saved missing, now '3'", "model: saved 'gpt2', now missing", "changed_identity"},
        [&] {
            resume({.identity = {{"seed", "2"}, {"width", "3"}}}, {});
        });
    EXPECT_NO_THROW(
        resume({.identity = {{"seed", "2"}, {"model", "gpt2"}}}, {.changed_identity = {"seed"}}));
    Accelerator unchecked({.cpu = true, .project_config = {.identity = {{"seed", "2"}}}});
    EXPECT_NO_THROW(unchecked.load_state(folder / "c"));
}

TEST(RunIdentity, IsNotCheckedIfTheCheckpointHasNone) {
    const TemporaryFolder folder;
    Accelerator({.cpu = true}).save_state(folder / "c");
    Accelerator second({.cpu = true, .project_config = {.identity = {{"seed", "2"}}}});
    EXPECT_NO_THROW(second.load_state(folder / "c", {.check_identity = true}));
}

TEST(TotalLimit, RemovesOnlyCheckpointsOfItsOwnRun) {
    const TemporaryFolder folder;
    {
        Accelerator finished(in_project(folder, {.total_limit = 2}));
        finished.save_state();
        finished.save_state();
    }
    Accelerator fresh(in_project(folder, {.total_limit = 1}));
    fresh.set_save_iteration(5);
    fresh.save_state();
    fresh.save_state();
    for (const int kept : {0, 1, 6}) EXPECT_TRUE(fs::exists(saved(folder, kept))) << kept;
    EXPECT_FALSE(fs::exists(saved(folder, 5)));
    // A continued run removes its own older checkpoints.
    Accelerator continued(in_project(folder, {.total_limit = 1}));
    continued.load_state();
    continued.save_state();
    EXPECT_FALSE(fs::exists(saved(folder, 6)));
    EXPECT_TRUE(fs::exists(saved(folder, 7)));
    EXPECT_TRUE(fs::exists(saved(folder, 0)));
}

TEST(BestLimit, KeepsTheBestCheckpointsBesidesTheNewest) {
    for (const bool greater_is_better : {false, true}) {
        const TemporaryFolder folder;
        Accelerator accelerator(in_project(
            folder, {.total_limit = 1, .best_limit = 1, .greater_is_better = greater_is_better}));
        for (const double metric : {2.0, 1.0, 3.0, 2.5})
            accelerator.save_state("", {.metric = metric});
        for (int i = 0; i < 4; ++i)
            EXPECT_EQ(fs::exists(saved(folder, i)), i == 3 || i == (greater_is_better ? 2 : 1))
                << i;
    }
}

TEST(LoadState, RejectsOrSkipsADamagedNewestCheckpoint) {
    const TemporaryFolder folder;
    tests::Training training;
    Accelerator accelerator(in_project(folder));
    for (int i = 0; i < 3; ++i) accelerator.save_state();
    const std::string manifest = saved(folder, 2) + "/manifest.json";
    const std::string state = saved(folder, 1) + "/random_states_0.json";
    tests::put(manifest, read_file(manifest).substr(0, 70));
    expect_error<FileError>({"load_state: ", manifest.c_str(), saved(folder, 1).c_str()},
                            [&] { accelerator.load_state(); });
    tests::put(state, "{}");
    tests::LogCapture log;
    EXPECT_EQ(accelerator.load_state("", {.skip_damaged = true}), saved(folder, 0));
    EXPECT_EQ(log.lines().size(), 2u);
    fs::remove_all(saved(folder, 2));
    expect_error<FileError>({state.c_str(), saved(folder, 0).c_str()},
                            [&] { accelerator.load_state(); });
    // A damaged checkpoint does not prevent loading another checkpoint.
    EXPECT_NO_THROW(accelerator.load_state(saved(folder, 0)));
}

TEST(LoadState, DoesNotSkipAnIntactCheckpointOfAnotherModel) {
    const TemporaryFolder folder;
    for (const int width : {8, 9}) {
        nn::Linear layer(4, width);
        Accelerator accelerator(in_project(folder));
        accelerator.prepare(layer);
        accelerator.set_save_iteration(width);
        accelerator.save_state();
    }
    nn::Linear layer(4, 8);
    Accelerator accelerator(in_project(folder));
    accelerator.prepare(layer);
    tests::LogCapture log;
    expect_error<FileError>({(saved(folder, 9) + "/model.safetensors").c_str(), "load_state_dict"},
                            [&] { accelerator.load_state("", {.skip_damaged = true}); });
    EXPECT_TRUE(log.lines().empty());
    accelerator.load_state(saved(folder, 8));
}

TEST(SaveState, RejectsAFolderThatAnotherProcessWritesTo) {
    const TemporaryFolder folder;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = tests::fork_process();
    if (child == 0) {
        Accelerator accelerator(in_project(folder));
        accelerator.save_state();
        if (::write(ready[1], "1", 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    Accelerator second(in_project(folder));
    second.load_state();
    expect_error<FileError>(
        {(folder / "checkpoints").c_str(), str("is in use by process ", child).c_str()},
        [&] { second.save_state(); });
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(second.save_state(), saved(folder, 1));
    close(ready[0]);
    close(ready[1]);
}

TEST(SaveState, SyncsNothingIfDurabilityIsNone) {
    const TemporaryFolder folder;
    Accelerator accelerator({.cpu = true});
    for (const bool durable : {false, true}) {
        tests::FaultyFileSystem counting(file_system(), SIZE_MAX, EIO);
        const tests::ReplacedFileSystem replaced(counting);
        accelerator.save_state(folder / "c",
                               {.durability = durable ? Durability::full : Durability::none});
        EXPECT_EQ(counting.syncs() > 0, durable);
    }
}

// Makes `path` the working directory of the process. The destructor restores the previous working
// directory, also if `path` was deleted.
class WorkingDirectory {
  public:
    explicit WorkingDirectory(const std::string& path) : before_(fs::current_path()) {
        fs::current_path(path);
    }
    ~WorkingDirectory() { fs::current_path(before_); }
    WorkingDirectory(const WorkingDirectory&) = delete;
    WorkingDirectory& operator=(const WorkingDirectory&) = delete;

  private:
    fs::path before_;
};

TEST(SaveState, DoesNotReplaceFoldersThatContainTheWorkingDirectory) {
    const TemporaryFolder folder;
    fs::create_directories(folder / "empty");
    Accelerator accelerator({.cpu = true});
    accelerator.save_state(folder / "c");
    fs::create_directories(folder / "c/inside");
    for (const auto& [directory, path] : std::vector<std::pair<std::string, std::string>>{
             {"empty", "."}, {"c/inside", ".."}, {"c/inside", "../../c/"}, {"c", folder / "c"}}) {
        const WorkingDirectory here(folder / directory);
        expect_error<UsageError>({"save_state: ", str("'", path, "'").c_str(),
                                  "is or contains the working directory; save to a subfolder"},
                                 [&] { accelerator.save_state(path); });
        EXPECT_EQ(folder.count(), 2u);
        EXPECT_TRUE(fs::equivalent(".", folder / directory));
    }
    const WorkingDirectory here(folder / "empty");
    EXPECT_EQ(accelerator.save_state("checkpoint"), "checkpoint");
    accelerator.save_state("../c");
    EXPECT_FALSE(fs::exists(folder / "c/inside"));
}

TEST(SaveState, ThrowsFileErrorForRelativePathsInADeletedWorkingDirectory) {
    const TemporaryFolder folder;
    fs::create_directories(folder / "deleted");
    Accelerator accelerator({.cpu = true});
    const WorkingDirectory here(folder / "deleted");
    fs::remove(folder / "deleted");
    nn::Linear linear(2, 2);
    for (const char* path : {"c", ".", "../c", "a/b"}) {
        SCOPED_TRACE(path);
        expect_error<FileError>({path, "the working directory may have been deleted"},
                                [&] { accelerator.save_state(path); });
        EXPECT_THROW(accelerator.load_state(path), FileError);
        EXPECT_THROW(accelerator.save_model(linear, path), FileError);
    }
    EXPECT_EQ(folder.count(), 0u);
    accelerator.save_state(folder / "c");
    EXPECT_NO_THROW(accelerator.load_state(folder / "c"));
}

}  // namespace
}  // namespace axle
