// Tests checkpoints that a background thread writes.
#include <condition_variable>
#include <mutex>
#include <random>
#include <string>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "gtest/gtest.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/fork.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::TemporaryFolder;
using tests::Training;

// A file system whose syncs wait until open_gate() is called.
class GatedFileSystem final : public tests::FaultyFileSystem {
  public:
    GatedFileSystem() : FaultyFileSystem(file_system(), SIZE_MAX, EIO) {}
    int sync(int file) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return is_open_; });
        return FaultyFileSystem::sync(file);
    }
    void open_gate() {
        const std::lock_guard lock(mutex_);
        is_open_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_open_ = false;
};

TEST(AsynchronousSave, StoresTheStateAtTheTimeOfTheCall) {
    const TemporaryFolder folder;
    Training training;
    training.run(1);
    training.accelerator.save_state(folder / "expected");
    GatedFileSystem gated;
    const tests::ReplacedFileSystem replaced(gated);
    training.accelerator.save_state(folder / "c", {.asynchronous = true});
    EXPECT_FALSE(accel::is_checkpoint(folder / "c"));  // its files are not synced yet
    {
        const NoGrad no_grad;
        for (Tensor& parameter : training.net.parameters()) parameter.fill_(7);
    }
    training.run(2);
    gated.open_gate();
    training.accelerator.wait_for_saves();
    const accel::CheckpointReader expected(folder / "expected"), found(folder / "c");
    for (const char* file :
         {"model.safetensors", "optimizer.safetensors", "optimizer.json", "scheduler.json",
          "dl_state_dict.json", "random_states_0.json", "custom_checkpoint_0.json"})
        EXPECT_TRUE(read_file(found.file(file)) == read_file(expected.file(file))) << file;
}

TEST(AsynchronousSave, ThrowsItsErrorOnceInWaitForSaves) {
    const TemporaryFolder folder;
    Training training;
    accel::Accelerator& accelerator = training.accelerator;
    const auto fail = [&] {
        tests::FaultyFileSystem faulty(file_system(), 5, ENOSPC);
        const tests::ReplacedFileSystem replaced(faulty);
        accelerator.save_state(folder / "c", {.asynchronous = true});
        // The thread must finish before the original file system is restored.
        EXPECT_THROW(accelerator.wait_for_saves(), FileError);
        return true;
    };
    EXPECT_TRUE(fail());
    EXPECT_NO_THROW(accelerator.wait_for_saves());  // each error is thrown only once
    EXPECT_FALSE(accel::is_checkpoint(folder / "c"));
    EXPECT_EQ(folder.count(), 0u);
    accelerator.save_state(folder / "c", {.asynchronous = true});
    accelerator.load_state(folder / "c");  // waits for the save
}

TEST(AsynchronousSave, IsCompletedByTheDestructorOfTheAccelerator) {
    const TemporaryFolder folder;
    {
        Training training;
        training.accelerator.save_state(folder / "c", {.asynchronous = true});
    }
    EXPECT_NO_THROW(accel::CheckpointReader(folder / "c"));
}

TEST(AsynchronousSave, KeepsOnlyTheNewestCheckpointIfTotalLimitIsOne) {
    const TemporaryFolder folder;
    accel::Accelerator accelerator(
        {.cpu = true,
         .project_config = {
             .project_dir = folder.path(), .automatic_checkpoint_naming = true, .total_limit = 1}});
    for (int i = 0; i < 3; ++i) accelerator.save_state("", {.asynchronous = true});
    accelerator.wait_for_saves();
    const auto list = accel::list_checkpoints(folder / "checkpoints");
    ASSERT_EQ(list.entries.size(), 1u);
    EXPECT_EQ(list.entries[0].iteration, 2);
}

// A child saves asynchronously after each batch and is killed after a random number of reports. The
// last state that the child has reported as complete, or a newer state, can be loaded.
TEST(AsynchronousSave, KeepsAcknowledgedCheckpointsIfTheProcessIsKilled) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    std::mt19937 random(3);
    for (int round = 0; round < 30; ++round) {
        SCOPED_TRACE(str("round ", round));
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = tests::fork_process();
        if (child == 0) {
            Training training;
            training.run(1'000'000, [&] {
                // When save_state() returns, the save of the previous batch is complete.
                const std::int64_t complete = training.counter.batches - 1;
                training.accelerator.save_state(folder / "last", {.asynchronous = true});
                if (write(ends[1], &complete, sizeof complete) != sizeof complete) _exit(2);
            });
            _exit(3);
        }
        close(ends[1]);
        pollfd ready = {.fd = ends[0], .events = POLLIN, .revents = 0};
        std::int64_t complete = 0, number = 0;
        const auto kills_after = static_cast<std::int64_t>(1 + random() % 20);
        while (complete < kills_after && poll(&ready, 1, 20'000) == 1 &&
               read(ends[0], &number, sizeof number) == sizeof number)
            complete = number;
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        while (read(ends[0], &number, sizeof number) == sizeof number) complete = number;
        close(ends[0]);
        Training resumed(99);
        ASSERT_NO_THROW(resumed.accelerator.load_state(folder / "last"));
        EXPECT_GE(resumed.counter.batches, complete);
        std::filesystem::remove_all(folder / "last");
    }
}

}  // namespace
}  // namespace axle
