// Tests which checkpoint of a folder is the latest, which checkpoints are removed, and which
// process may write them.
#include "accel/state/checkpoint_folder.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/state/folder_owner.h"
#include "gtest/gtest.h"
#include "tests/accel/state/checkpoint_files.h"
#include "tests/close.h"
#include "tests/fork.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using accel::latest_checkpoint;
using accel::latest_good_checkpoint;
using accel::rotate_checkpoints;
using tests::expect_error;
using tests::put;
using tests::TemporaryFolder;
using tests::write;

// Truncates a file of a checkpoint. Returns the path of the file.
std::string damage(const std::string& file) {
    put(file, read_file(file).substr(0, 60));
    return file;
}

TEST(LatestCheckpoint, HasTheHighestIterationOrDoesNotExist) {
    const TemporaryFolder folder;
    EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
    EXPECT_EQ(latest_checkpoint(folder / "missing"), std::nullopt);
    write(folder / "step_9", 1);
    write(folder / "step_10", 2);
    write(folder / "best", 3);
    write(folder / "zz", 0);
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "best");
}

TEST(LatestCheckpoint, IgnoresSymlinksUnfinishedCheckpointsAndUnrelatedFolders) {
    const TemporaryFolder folder;
    const TemporaryFolder elsewhere;
    write(folder / "c", 1);
    fs::create_directory_symlink(write(elsewhere / "d", 9), folder / "link");
    put(folder / "site/manifest.json", tests::kForeign);
    put(folder / "broken/manifest.json", "{");
    put(folder / "notes/text", "text");
    put(folder / "file", "text");
    fs::rename(write(folder / "e", 8), folder / ".axle-save-0123456789abcdef");
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "c");
}

TEST(CopiesAndRenamedCheckpoints, AreIgnoredByLatestCheckpointAndRotation) {
    const TemporaryFolder folder;
    write(folder / "checkpoint_1", 1);
    write(folder / "checkpoint_2", 2);
    fs::copy(folder / "checkpoint_2", folder / "best_2026", fs::copy_options::recursive);
    fs::rename(write(folder / "checkpoint_3", 3), folder / "final_9999");
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "checkpoint_2");
    rotate_checkpoints(folder.path(), 1);
    for (const char* kept : {"checkpoint_2", "best_2026", "final_9999"})
        EXPECT_EQ(accel::checkpoint_label(folder / kept).name,
                  std::string(kept) == "final_9999" ? "checkpoint_3" : "checkpoint_2");
    EXPECT_EQ(folder.count(), 3u);
}

TEST(LatestCheckpoint, ThrowsIfADamagedCheckpointMayBeNewer) {
    const TemporaryFolder folder;
    write(folder / "checkpoint_1", 1);
    const std::string file = damage(write(folder / "checkpoint_2", 2) + "/manifest.json");
    expect_error<FileError>({"latest_checkpoint: the newest checkpoint may be damaged: ",
                             file.c_str(), (folder / "checkpoint_1").c_str()},
                            [&] { latest_checkpoint(folder.path()); });
    write(folder / "checkpoint_3", 3);
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "checkpoint_3");
    EXPECT_NO_THROW(rotate_checkpoints(folder.path(), 1));
    EXPECT_TRUE(fs::exists(file));
    damage(write(folder / "named", 0) + "/manifest.json");  // this folder name has no iteration
    EXPECT_THROW(latest_checkpoint(folder.path()), FileError);
}

TEST(LatestGoodCheckpoint, SkipsAndLogsDamagedCheckpoints) {
    const TemporaryFolder folder;
    tests::LogCapture log;
    EXPECT_EQ(latest_good_checkpoint(folder.path()), std::nullopt);
    write(folder / "checkpoint_1", 1);
    write(folder / "checkpoint_2", 2);
    const std::string state = damage(write(folder / "checkpoint_3", 3) + "/state.json");
    const std::string manifest = damage(write(folder / "checkpoint_4", 4) + "/manifest.json");
    put(state, "{}");
    EXPECT_EQ(latest_good_checkpoint(folder.path()), folder / "checkpoint_2");
    const auto lines = log.lines();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NE((lines[0] + lines[1]).find(state), std::string::npos);
    EXPECT_NE((lines[0] + lines[1]).find(manifest), std::string::npos);
}

TEST(LatestGoodCheckpoint, LogsEveryDamagedCheckpointIfNoneIsGood) {
    tests::LogCapture log;
    const TemporaryFolder folder;
    const std::string manifest = damage(write(folder / "checkpoint_1", 1) + "/manifest.json");
    const std::string state = write(folder / "checkpoint_2", 2) + "/state.json";
    put(state, "{}");
    EXPECT_EQ(latest_good_checkpoint(folder.path()), std::nullopt);
    const auto lines = log.lines();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NE(lines[0].find(state), std::string::npos);
    EXPECT_NE(lines[1].find(manifest), std::string::npos);
}

TEST(NextIteration, IsAboveTheHighestNumberInCheckpointNames) {
    const TemporaryFolder folder;
    EXPECT_EQ(accel::next_iteration(accel::list_checkpoints(folder / "none")), 0);
    write(folder / "checkpoint_4", 1);
    damage(write(folder / "checkpoint_7", 2) + "/manifest.json");
    EXPECT_EQ(accel::next_iteration(accel::list_checkpoints(folder.path())), 8);
}

// Covers 10.total_limit, 30.11.
TEST(CheckpointRotation, KeepsTheNewestCheckpointsAndUnrelatedFiles) {
    const TemporaryFolder folder;
    const TemporaryFolder elsewhere;
    for (int i = 0; i < 5; ++i) write(folder / str("c", 9 - i), i);
    fs::create_directory_symlink(write(elsewhere / "d", -1), folder / "link");
    put(folder / "site/manifest.json", tests::kForeign);
    put(folder / "notes/text", "text");
    put(folder / "file", "text");
    put(folder / ".hidden/text", "text");
    rotate_checkpoints(folder.path(), 2);
    for (const char* kept :
         {"c5", "c6", "link", "site/manifest.json", "notes/text", "file", ".hidden/text"})
        EXPECT_TRUE(fs::exists(folder / kept)) << kept;
    EXPECT_EQ(folder.count(), 7u);
    EXPECT_TRUE(fs::exists(elsewhere / "d/manifest.json"));
    rotate_checkpoints(folder.path(), 0);  // one checkpoint is always kept
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "c5");
    EXPECT_NO_THROW(rotate_checkpoints(folder / "missing", 1));
}

TEST(CheckpointRotation, KeepsCheckpointsOfOtherRuns) {
    const TemporaryFolder folder;
    for (int i = 0; i < 3; ++i) {
        write(folder / str("old_", i), {.iteration = i, .run = "old"});
        write(folder / str("new_", i), {.iteration = 10 + i, .run = "new"});
    }
    rotate_checkpoints(folder.path(), 1, "new");
    EXPECT_EQ(folder.count(), 4u);
    EXPECT_TRUE(fs::exists(folder / "new_2"));
    EXPECT_TRUE(fs::exists(folder / "old_0"));
}

TEST(CheckpointRotation, KeepsFilesThatTheManifestDoesNotList) {
    const TemporaryFolder folder;
    for (int i = 0; i < 2; ++i) write(folder / str("c", i), i);
    put(folder / "c0/notes.txt", "mine");
    put(folder / "c0/plots/loss.png", "mine");
    rotate_checkpoints(folder.path(), 1);
    EXPECT_TRUE(fs::exists(folder / "c0/notes.txt"));
    EXPECT_TRUE(fs::exists(folder / "c0/plots/loss.png"));
    EXPECT_FALSE(fs::exists(folder / "c0/state.json"));
    EXPECT_FALSE(accel::is_checkpoint(folder / "c0"));
}

TEST(BestCheckpoints, AreOrderedByTheirMetricAndKeptByRotation) {
    const TemporaryFolder folder;
    const double metrics[] = {3, 1, NAN, 2, 1};
    for (int i = 0; i < 5; ++i)
        write(folder / str("c", i), {.iteration = i, .run = "run", .metric = metrics[i]});
    write(folder / "without", {.iteration = 9, .run = "run"});
    write(folder / "other", {.iteration = 10, .run = "other", .metric = 0});
    using Paths = std::vector<std::string>;
    EXPECT_EQ(accel::best_checkpoints(folder.path(), 3, false, "run"),
              (Paths{folder / "c1", folder / "c4", folder / "c3"}));
    EXPECT_EQ(accel::best_checkpoints(folder.path(), 1, true, "run"), Paths{folder / "c0"});
    rotate_checkpoints(folder.path(), 1, "run", {folder / "c1"});
    EXPECT_TRUE(fs::exists(folder / "c1"));
    EXPECT_TRUE(fs::exists(folder / "without"));
    EXPECT_EQ(folder.count(), 3u);
}

TEST(FolderOwner, IsSharedWithinAProcessAndHoldsALock) {
    const TemporaryFolder folder;
    const std::string path = folder / "checkpoints";
    auto owner = accel::FolderOwner::claim(path);
    EXPECT_EQ(accel::FolderOwner::claim(path + "/."), owner);
    EXPECT_FALSE(PathLock::try_file(folder / ".checkpoints.lock").has_value());
    owner.reset();
    EXPECT_TRUE(PathLock::try_file(folder / ".checkpoints.lock").has_value());
}

TEST(FolderOwner, ThrowsAnErrorThatNamesTheOwningProcess) {
    const TemporaryFolder folder;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = tests::fork_process();
    if (child == 0) {
        const auto owner = accel::FolderOwner::claim(folder / "checkpoints");
        if (::write(ready[1], "1", 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    expect_error<FileError>(
        {(folder / "checkpoints").c_str(), str("is in use by process ", child).c_str()},
        [&] { accel::FolderOwner::claim(folder / "checkpoints"); });
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_NE(accel::FolderOwner::claim(folder / "checkpoints"), nullptr);
    close(ready[0]);
    close(ready[1]);
}

}  // namespace
}  // namespace axle
