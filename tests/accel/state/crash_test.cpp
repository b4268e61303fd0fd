// Tests that a process leaves a valid checkpoint if it saves continuously and is killed at a random
// time.
#include <csignal>
#include <iostream>
#include <random>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "tests/accel/training.h"
#include "tests/fork.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::TemporaryFolder;
using tests::Training;

// Runs in the child: continues from the latest checkpoint. After every batch, saves and then
// reports the number of batches. After every third batch, also removes all but two checkpoints.
[[noreturn]] void train_and_save(const std::string& folder, bool same_place, int acknowledge) {
    Training training;
    if (const auto latest = accel::latest_checkpoint(folder))
        training.accelerator.load_state(*latest);
    training.run(1'000'000, [&] {
        const std::int64_t batches = training.counter.batches;
        training.accelerator.save_state(
            folder + (same_place ? std::string("/last") : str("/after_", batches)));
        if (::write(acknowledge, &batches, sizeof batches) != sizeof batches) _exit(2);
        if (batches % 3 == 0) accel::rotate_checkpoints(folder, 2);
    });
    _exit(3);
}

// Starts a child that runs train_and_save(), and kills it `time` after its first report. Returns
// the last number of batches that it reported, or -1 if there is none.
std::int64_t killed_run(const std::string& folder, bool same_place,
                        std::chrono::microseconds time) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const pid_t child = tests::fork_process();
    if (child == 0) {
        close(ends[0]);
        try {
            train_and_save(folder, same_place, ends[1]);
        } catch (const std::exception& error) {
            std::cerr << error.what() << std::endl;
        }
        _exit(1);
    }
    close(ends[1]);
    pollfd ready = {.fd = ends[0], .events = POLLIN, .revents = 0};
    poll(&ready, 1, 20'000);
    std::this_thread::sleep_for(time);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    std::int64_t reported = -1, number = 0;
    while (read(ends[0], &number, sizeof number) == sizeof number) reported = number;
    close(ends[0]);
    return reported;
}

void expect_to_survive(int rounds, bool same_place) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    std::mt19937 random(same_place ? 1 : 2);
    std::int64_t reported = 0;
    for (int round = 0; round < rounds; ++round) {
        SCOPED_TRACE(str("round ", round));
        const std::chrono::microseconds time(random() % 12'000);
        const std::int64_t last = killed_run(folder.path(), same_place, time);
        ASSERT_GT(last, reported);
        reported = last;
        const auto latest = accel::latest_checkpoint(folder.path());
        ASSERT_TRUE(latest.has_value());
        Training resumed(99);
        ASSERT_NO_THROW(resumed.accelerator.load_state(*latest));
        // The child may have saved once more without reporting.
        EXPECT_GE(resumed.counter.batches, reported);
        EXPECT_LE(resumed.counter.batches, reported + 1);
    }
    accel::rotate_checkpoints(folder.path(), 1);
    // A new writer removes the temporary folders of the killed writers.
    accel::CheckpointWriter{folder / "new"};
    EXPECT_EQ(folder.count(), 1u);

    // The results must equal the results of an uninterrupted run.
    Training resumed(99);
    resumed.accelerator.load_state(accel::latest_checkpoint(folder.path()).value());
    const std::int64_t epochs = resumed.loader.epoch() + 1;
    resumed.run(epochs);
    const auto end = tests::snapshot(resumed);
    Training again;
    again.run(epochs);
    tests::expect_same(tests::snapshot(again), end);
}

// Covers 30.11.
TEST(LatestCheckpoint, CanBeLoadedAfterSixtyKilledSaves) { expect_to_survive(60, false); }

TEST(ReplacedCheckpoint, CanBeLoadedAfterSixtyKilledSaves) { expect_to_survive(60, true); }

TEST(SaveState, KeepsTheLatestCheckpointWhenKilledInALongRun) {
    expect_to_survive(600, false);
    expect_to_survive(600, true);
}

}  // namespace
}  // namespace axle
