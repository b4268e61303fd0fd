// Tests that removing checkpoints and temporary directories does not change files outside of them.
// Another process may replace a folder by a symbolic link at the same time.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>

#include "accel/accelerator.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "accel/state/folder_owner.h"
#include "gtest/gtest.h"
#include "tests/accel/state/checkpoint_files.h"
#include "tests/close.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using tests::put;
using tests::TemporaryFolder;

std::map<std::string, std::string> texts_in(const std::string& folder) {
    std::map<std::string, std::string> texts;
    for (const std::string& name : contents_of(folder).files)
        texts[name] = read_file(folder + "/" + name);
    return texts;
}

// A thread that repeatedly exchanges two paths until stop() is called. An exchange has no effect
// while one of the paths does not exist.
class Exchanger {
  public:
    Exchanger(const std::string& a, const std::string& b)
        : thread_([this, a, b] {
              while (!stop_)
                  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0)
                      ++count_;
          }) {
        while (count_ == 0) std::this_thread::yield();
    }
    ~Exchanger() { stop(); }
    Exchanger(const Exchanger&) = delete;
    Exchanger& operator=(const Exchanger&) = delete;

    // Ends the thread and returns the number of exchanges.
    int stop() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
        return count_;
    }

  private:
    std::atomic<bool> stop_ = false;
    std::atomic<int> count_ = 0;
    std::thread thread_;
};

class CheckpointRemoval : public testing::Test {
  protected:
    // Writes a checkpoint with files in subfolders.
    void write_checkpoint(const std::string& name, std::int64_t iteration) const {
        accel::CheckpointWriter writer(folder_ / name, Durability::none);
        writer.write("state", Tree{{"iteration", iteration}});
        put(writer.directory() + "/unet/config.json", "{}");
        put(writer.directory() + "/unet/parts/weights", "weights");
        writer.commit({.iteration = iteration});
    }
    // Calls `remove` repeatedly while another thread exchanges the folder `attacked` with a
    // symbolic link. Stops after `exchanges` exchanges. The link refers to a copy of the folder,
    // which must not change. `prepare` writes the folders.
    void attack(const std::string& attacked, int exchanges, const std::function<void()>& prepare,
                const std::function<void()>& remove) const {
        const std::string link = folder_ / "link";
        const std::string outside = outside_ / "copy";
        tests::LogCapture reports;  // removals that fail because of an exchange are reported
        prepare();
        fs::copy(folder_ / attacked, outside, fs::copy_options::recursive);
        put(outside + "/other", "a file that no manifest lists");
        const auto texts = texts_in(outside);
        int removals = 0;
        for (int count = 0; count < exchanges;) {
            for (const std::string& name : list_folder(folder_.path()))
                fs::remove_all(folder_ / name);
            prepare();
            fs::create_directory_symlink(outside, link);
            Exchanger exchanger(folder_ / attacked, link);
            try {
                remove();
                ++removals;
            } catch (const FileError&) {  // a link in place of the folder is an error
            }
            count += exchanger.stop();
            ASSERT_EQ(texts_in(outside), texts);
        }
        EXPECT_GT(removals, 0);
    }
    void attack_rotation(const std::string& attacked, int exchanges) const {
        const auto prepare = [&] {
            write_checkpoint("checkpoint_1", 1);
            write_checkpoint("checkpoint_2", 2);
        };
        attack(attacked, exchanges, prepare, [&] { accel::rotate_checkpoints(folder_.path(), 1); });
    }
    // Attacks the removal of a checkpoint. The folder contains a file that the manifest does not
    // list, so the removal deletes the listed files one by one.
    void attack_listed_files(const std::string& attacked, int exchanges) const {
        const auto prepare = [&] {
            write_checkpoint("checkpoint_1", 1);
            put(folder_ / "checkpoint_1/notes.txt", "mine");
        };
        attack(attacked, exchanges, prepare,
               [&] { accel::remove_checkpoint(folder_ / "checkpoint_1"); });
    }
    void attack_temporaries(const std::string& attacked, int exchanges) const {
        const auto prepare = [&] {
            put(folder_ / ".axle-save-0123456789abcdef/state.json", "{}");
            put(folder_ / ".axle-trash-0123456789abcdef/unet/config.json", "{}");
            put(folder_ / ".axle-trash-0123456789abcdef/unet/parts/weights", "weights");
        };
        attack(attacked, exchanges, prepare, [&] {
            const accel::CheckpointWriter removes(folder_ / "checkpoint_3", Durability::none);
        });
    }

    TemporaryFolder folder_{tests::FolderStorage::in_memory};
    TemporaryFolder outside_{tests::FolderStorage::in_memory};
};

// Another user may have replaced the folder `checkpoints` in the project folder by a link, so such
// a link is an error. Links in the path of the project folder itself are followed.
TEST_F(CheckpointRemoval, RejectsAFolderOfCheckpointsThatIsALink) {
    fs::create_directory(outside_ / "project");
    fs::create_directory_symlink(outside_ / "project", folder_ / "project");
    const std::string checkpoints = outside_ / "project/checkpoints";
    const auto expect_refusal = [&](const auto& f) {
        const std::string path = folder_ / "project/checkpoints";
        tests::expect_error<FileError>({path.c_str(), "is a symbolic link"}, f);
    };
    accel::Accelerator accelerator({.cpu = true,
                                    .project_config = {.project_dir = folder_ / "project",
                                                       .automatic_checkpoint_naming = true,
                                                       .total_limit = 1}});
    accelerator.save_state();
    fs::rename(checkpoints, outside_ / "elsewhere");
    fs::create_directory_symlink(outside_ / "elsewhere", checkpoints);
    const auto texts = texts_in(outside_ / "elsewhere");
    expect_refusal([&] { accelerator.save_state(); });
    expect_refusal([&] { accelerator.save_state({}, {.asynchronous = true}); });
    expect_refusal([&] { accel::FolderOwner::claim(folder_ / "project/checkpoints/"); });
    EXPECT_EQ(texts_in(outside_ / "elsewhere"), texts);
    // The link is created during the save, before the old checkpoints are removed.
    fs::remove(checkpoints);
    fs::rename(outside_ / "elsewhere", checkpoints);
    const accel::HookHandle hook =
        accelerator.register_save_state_pre_hook([&](const auto&, const auto&, const std::string&) {
            fs::rename(checkpoints, outside_ / "elsewhere");
            fs::create_directory_symlink(outside_ / "elsewhere", checkpoints);
        });
    expect_refusal([&] { accelerator.save_state(); });
    EXPECT_TRUE(accel::is_checkpoint(outside_ / "elsewhere/checkpoint_0"));
}

// Writes a file into a folder just before the folder is renamed for the first time.
class LateWriter final : public tests::FaultyFileSystem {
  public:
    explicit LateWriter(std::string folder)
        : FaultyFileSystem(file_system(), SIZE_MAX, 0), folder_(std::move(folder)) {}
    int rename(const std::string& from, const std::string& to) override {
        if (from == folder_ && !std::exchange(has_written_, true)) put(from + "/notes.txt", "mine");
        return FaultyFileSystem::rename(from, to);
    }

  private:
    std::string folder_;
    bool has_written_ = false;
};

TEST_F(CheckpointRemoval, KeepsAFileThatIsAddedBeforeTheCheckpointIsRenamed) {
    write_checkpoint("checkpoint_1", 1);
    LateWriter writer(folder_ / "checkpoint_1");
    {
        const tests::ReplacedFileSystem replaced(writer);
        accel::remove_checkpoint(folder_ / "checkpoint_1");
    }
    EXPECT_EQ(list_folder(folder_ / "checkpoint_1"), std::vector<std::string>{"notes.txt"});
    EXPECT_EQ(list_folder(folder_.path()), std::vector<std::string>{"checkpoint_1"});
}

constexpr int kExchanges = 20'000, kManyExchanges = 100'000;

TEST_F(CheckpointRemoval, DoesNotFollowLinksToFolders) {
    write_checkpoint("checkpoint_1", 1);
    fs::rename(folder_ / "checkpoint_1/unet", outside_ / "unet");
    fs::create_directory_symlink(outside_ / "unet", folder_ / "checkpoint_1/unet");
    accel::remove_checkpoint(folder_ / "checkpoint_1");
    EXPECT_EQ(read_file(outside_ / "unet/config.json"), "{}");
    EXPECT_EQ(read_file(outside_ / "unet/parts/weights"), "weights");
    EXPECT_EQ(list_folder(folder_ / "checkpoint_1"), std::vector<std::string>{"unet"});
}

TEST_F(CheckpointRemoval, KeepsOutsideFilesWhenACheckpointIsReplacedByALink) {
    attack_rotation("checkpoint_1", kExchanges);
}
TEST_F(CheckpointRemoval, KeepsOutsideFilesWhenASubfolderIsReplacedByALink) {
    attack_rotation("checkpoint_1/unet", kExchanges);
}
TEST_F(CheckpointRemoval, KeepsOutsideFilesWhenACheckpointWithAnUnlistedFileIsReplacedByALink) {
    attack_listed_files("checkpoint_1", kExchanges);
}
TEST_F(CheckpointRemoval, KeepsOutsideFilesWhenASubfolderNextToAnUnlistedFileIsReplacedByALink) {
    attack_listed_files("checkpoint_1/unet", kExchanges);
}
TEST_F(CheckpointRemoval, KeepsOutsideFilesWhenATemporaryDirectoryIsReplacedByALink) {
    attack_temporaries(".axle-save-0123456789abcdef", kExchanges);
}
TEST_F(CheckpointRemoval, KeepsOutsideFilesWhenATemporarySubfolderIsReplacedByALink) {
    attack_temporaries(".axle-trash-0123456789abcdef/unet", kExchanges);
}

TEST_F(CheckpointRemoval, KeepsFilesOutsideOfAnAttackedCheckpointInALongRun) {
    attack_rotation("checkpoint_1", kManyExchanges);
}
TEST_F(CheckpointRemoval, KeepsFilesOutsideOfAnAttackedSubfolderInALongRun) {
    attack_listed_files("checkpoint_1/unet", kManyExchanges);
}
TEST_F(CheckpointRemoval, KeepsFilesOutsideOfAnAttackedTemporaryDirectoryInALongRun) {
    attack_temporaries(".axle-save-0123456789abcdef", kManyExchanges);
}

}  // namespace
}  // namespace axle
