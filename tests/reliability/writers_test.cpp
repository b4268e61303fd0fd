// Tests several writers of one folder, and folders that contain files of users.
#include <csignal>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/file.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/accel/training.h"
#include "tests/figures.h"
#include "tests/reporting_job.h"
#include "tests/temporary_folder.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

// Saves `count` times in a new run. Reports the number of each complete checkpoint, and then
// Event::finished with `count`.
void write_checkpoints(const std::string& folder, int count, const ReportingJob::Reporter& report) {
    Training training(
        7, 0, true, nullptr,
        {.project_dir = folder,
         .automatic_checkpoint_naming = true,
         .total_limit = 2,
         .iteration = accel::next_iteration(accel::list_checkpoints(folder + "/checkpoints"))});
    for (int i = 0; i < count; ++i) {
        const std::string path = training.accelerator.save_state();
        report(Event::saved, accel::checkpoint_number(path).value());
    }
    report(Event::finished, count);
}

// Reads the reports that a job has sent. Returns the last saved iteration, or -1.
std::int64_t last_saved(ReportingJob& job) {
    std::int64_t saved = -1;
    while (const auto report = job.next(std::chrono::milliseconds(0)))
        if (report->event == Event::saved) saved = report->value;
    return saved;
}

void expect_writers_to_lose_nothing(int rounds) {
    constexpr int kSaves = 4;
    std::mt19937 random(4);
    int saved_by_both = 0, lost = 0, damaged = 0, rejected = 0;
    auto folder = std::make_unique<TemporaryFolder>(FolderStorage::in_memory);
    for (int round = 0; round < rounds; ++round) {
        SCOPED_TRACE(str("round ", round));
        // Uses a new folder from time to time, because a folder with many finished runs is slow to
        // list.
        if (round % 20 == 0) folder = std::make_unique<TemporaryFolder>(FolderStorage::in_memory);
        const auto write = [&](const auto&, const auto& report) {
            write_checkpoints(folder->path(), kSaves, report);
        };
        ReportingJob a(1, write);
        std::this_thread::sleep_for(microseconds(random() % 4'000));
        ReportingJob b(1, write);
        if (random() % 2 == 0) {
            std::this_thread::sleep_for(microseconds(random() % 10'000));
            a.signal(0, SIGKILL);
        }
        EXPECT_TRUE(a.wait());
        EXPECT_TRUE(b.wait());
        const std::int64_t saved[] = {last_saved(a), last_saved(b)};
        const auto list = accel::list_checkpoints(*folder / "checkpoints");
        damaged += static_cast<int>(list.damaged.size());
        for (const std::int64_t iteration : saved) {
            rejected += iteration < 0;
            if (iteration < 0) continue;
            const std::string path = str(*folder / "checkpoints/checkpoint_", iteration);
            try {
                const accel::CheckpointReader verified(path);
            } catch (const Error& error) {
                ADD_FAILURE() << error.what();
                ++lost;
            }
        }
        saved_by_both += saved[0] >= 0 && saved[1] >= 0;
        if (testing::Test::HasFailure()) break;
    }
    EXPECT_EQ(damaged, 0);
    EXPECT_GT(rejected, 0) << "no writer found the folder in use";
    record_figure("two_writers_of_one_folder", {{"rounds", rounds},
                                                {"rounds_in_which_both_saved", saved_by_both},
                                                {"writers_that_were_rejected_or_killed", rejected},
                                                {"damaged", damaged},
                                                {"acknowledged_saves_lost", lost}});
}

TEST(TwoWriters, LoseNoAcknowledgedCheckpoint) { expect_writers_to_lose_nothing(20); }

TEST(TwoWriters, LoseNoAcknowledgedCheckpointInALongRun) { expect_writers_to_lose_nothing(1000); }

// Runs a function when its state is saved. A save reads the states after it has chosen its name.
struct CalledBySave : accel::Checkpointable {
    std::function<void()> call;
    Tree state_dict() const override { return call(), Tree::map(); }
    void load_state_dict(const Tree&) override {}
};

TEST(TwoWriters, RejectTheSecondWriterWhileTheFirstSaves) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string saving = folder / "saving";
    // The process starts before the folder is owned, because a new process inherits the lock.
    ReportingJob other(1, [&](const auto&, const auto& report) {
        if (comes_true([&] { return fs::exists(saving); }))
            write_checkpoints(folder.path(), 1, report);
    });
    CalledBySave called;
    called.call = [&] {
        std::ofstream(saving) << "now";
        EXPECT_TRUE(other.wait());
    };
    Training training(
        7, 0, true, nullptr,
        {.project_dir = folder.path(), .automatic_checkpoint_naming = true, .total_limit = 1});
    training.accelerator.register_for_checkpointing(called);
    training.accelerator.save_state();
    EXPECT_EQ(last_saved(other), -1) << "the other process saved a checkpoint of the same name";
    EXPECT_EQ(other.status(0), 1 << 8);
}

// Adds files of a user to the folder of the checkpoints and counts those that were deleted. Axle
// must not delete any of them.
class ForeignEntries {
  public:
    explicit ForeignEntries(std::string folder) : folder_(std::move(folder)) {}

    void add(unsigned kind) {
        const std::string name = str("note_", files_.size());
        const auto list = accel::list_checkpoints(folder_).entries;
        fs::create_directories(folder_);
        switch (kind % 5) {
            case 0:
                return write(folder_ + "/" + name);
            case 1:
                return write(folder_ + "/best_2026/" + name);
            case 2:
                return write(folder_ + "/.checkpoint-mine/" + name);
            case 3:
                if (!list.empty()) write(list[kind / 5 % list.size()].path + "/" + name);
                return;
            default:
                const std::string link = folder_ + str("/checkpoint_9", files_.size());
                if (fs::exists(fs::symlink_status(link))) return;
                write(folder_ + "/elsewhere/" + name);
                fs::create_directory_symlink(folder_ + "/elsewhere", link);
        }
    }
    int missing() const {
        int count = 0;
        for (const std::string& path : files_) count += !fs::exists(path);
        return count;
    }
    int size() const { return static_cast<int>(files_.size()); }

  private:
    void write(const std::string& path) {
        fs::create_directories(fs::path(path).parent_path());
        std::ofstream(path) << "mine";
        files_.insert(path);
    }
    std::string folder_;
    std::set<std::string> files_;
};

void train_with_limit(const std::string& folder, int limit, const ReportingJob::Reporter& report) {
    Training training(
        7, 0, true, nullptr,
        {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = limit});
    if (accel::latest_checkpoint(folder + "/checkpoints")) training.accelerator.load_state();
    report(Event::loaded, training.counter.batches);
    training.run(1'000'000, [&] {
        training.accelerator.save_state();
        report(Event::saved, training.counter.batches);
    });
}

void expect_histories_to_keep_everything(int sequences) {
    constexpr int kRuns = 4;
    int foreign = 0, missing = 0, lost = 0, kills = 0;
    for (int sequence = 0; sequence < sequences; ++sequence) {
        SCOPED_TRACE(str("sequence ", sequence));
        std::mt19937 random(static_cast<unsigned>(sequence));
        const TemporaryFolder folder(FolderStorage::in_memory);
        ForeignEntries entries(folder / "checkpoints");
        std::int64_t saved = 0;
        for (int run = 0; run <= kRuns; ++run) {
            const int limit = 1 + static_cast<int>(random() % 5);
            ReportingJob job(1, [&](const auto&, const auto& report) {
                train_with_limit(folder.path(), limit, report);
            });
            const auto loaded = job.next();
            ASSERT_TRUE(loaded.has_value()) << "the run did not start";
            lost += loaded->value < saved;
            EXPECT_GE(loaded->value, saved);
            if (run == kRuns) break;
            const unsigned saves = random() % 4;
            for (unsigned i = 0; i < saves; ++i) {
                const auto report = job.next();
                ASSERT_TRUE(report.has_value()) << "the run has ended";
                saved = report->value;
                if (random() % 3 == 0) entries.add(static_cast<unsigned>(random()));
            }
            std::this_thread::sleep_for(microseconds(random() % 3'000));
            job.signal(0, SIGKILL);
            EXPECT_TRUE(job.wait());
            ++kills;
            while (const auto report = job.next(std::chrono::milliseconds(0)))
                if (report->event == Event::saved) saved = report->value;
            if (random() % 2 == 0) entries.add(static_cast<unsigned>(random()));
        }
        foreign += entries.size();
        missing += entries.missing();
        EXPECT_EQ(entries.missing(), 0);
    }
    record_figure("random_histories_of_real_processes", {{"sequences", sequences},
                                                         {"kills", kills},
                                                         {"acknowledged_saves_lost", lost},
                                                         {"foreign_files", foreign},
                                                         {"foreign_files_removed", missing}});
}

TEST(CheckpointHistory, KeepsTheNewestCheckpointAndForeignFiles) {
    expect_histories_to_keep_everything(8);
}

TEST(CheckpointHistory, KeepsTheNewestCheckpointAndForeignFilesInALongRun) {
    expect_histories_to_keep_everything(500);
}

}  // namespace
}  // namespace axle::tests
