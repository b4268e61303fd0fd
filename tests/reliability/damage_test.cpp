// Damages the files of a checkpoint, and makes the operations of a save fail.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/file.h"
#include "core/files/file_system.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/accel/training.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/figures.h"
#include "tests/log_capture.h"
#include "tests/reporting_job.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;

void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

// Returns the sizes to which a file of n bytes is cut.
std::vector<std::size_t> cuts(std::size_t n) {
    std::vector<std::size_t> sizes;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, n / 2, n - 1})
        if (size < n) sizes.push_back(size);
    return sizes;
}

// Calls f with damaged contents of a file: truncated to each of cuts(), and 64 times with one bit
// changed.
template <class F>
void for_each_damage(const std::string& bytes, std::mt19937_64& random, F&& f) {
    for (const std::size_t size : cuts(bytes.size())) f(bytes.substr(0, size));
    for (int i = 0; i < 64 && !bytes.empty(); ++i) {
        const std::size_t bit = random() % (8 * bytes.size());
        std::string changed = bytes;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        f(changed);
    }
}

// Loads the checkpoint in all ranks of a job of this size. Returns the number of ranks that threw
// axle::Error, or -1 if a rank threw another exception.
int count_errors(int size, const std::string& path) {
    ReportingJob job(size, [&](const auto& group, const auto& report) {
        Training training(7, 0, true, group);
        std::int64_t typed = 0;
        try {
            training.accelerator.load_state(path);
        } catch (const Error&) {
            typed = 1;
        } catch (const std::exception&) {
            typed = 1000;
        }
        report(Event::loaded, typed);
    });
    int errors = 0;
    while (const auto report = job.next()) errors += static_cast<int>(report->value);
    EXPECT_TRUE(job.wait());
    return errors < 1000 ? errors : -1;
}

// Every rank must throw, so that no rank trains with a state that another rank has not loaded.
TEST(DamagedCheckpoint, IsRejectedOnEveryRank) {
    constexpr int kSize = 2;
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "state";
    ReportingJob save(kSize, [&](const auto& group, const auto&) {
        Training training(7, 0, true, group);
        training.run(1);
        training.accelerator.save_state(path);
    });
    ASSERT_TRUE(save.wait());
    ASSERT_EQ(count_errors(kSize, path), 0);
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
        if (!entry.is_regular_file()) continue;
        SCOPED_TRACE(entry.path());
        const std::string bytes = read_file(entry.path());
        write_bytes(entry.path(), bytes.substr(0, bytes.size() / 2));
        EXPECT_EQ(count_errors(kSize, path), kSize);
        fs::remove(entry.path());
        EXPECT_EQ(count_errors(kSize, path), kSize);
        write_bytes(entry.path(), bytes);
    }
    EXPECT_EQ(count_errors(kSize, path), 0);
}

TEST(DamagedCheckpoint, ThrowsAnAxleErrorForEachFileAndKindOfDamage) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "state";
    Training training;
    training.run(1);
    training.accelerator.save_state(path);
    std::mt19937_64 random(6);
    int files = 0, damages = 0, typed = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
        if (!entry.is_regular_file()) continue;
        SCOPED_TRACE(entry.path());
        ++files;
        const std::string bytes = read_file(entry.path());
        for_each_damage(bytes, random, [&](const std::string& damaged) {
            write_bytes(entry.path(), damaged);
            ++damages;
            try {
                training.accelerator.load_state(path);
                ADD_FAILURE() << "a damaged file was loaded";
            } catch (const Error& error) {
                const std::string text = error.what();
                EXPECT_NE(text.find(folder.path()), std::string::npos) << text;
                ++typed;
            }
        });
        write_bytes(entry.path(), bytes);
    }
    training.accelerator.load_state(path);
    EXPECT_EQ(typed, damages);
    EXPECT_GE(files, 5);
    record_figure("damaged_files",
                  {{"files", files}, {"damages", damages}, {"typed_errors", typed}});
}

// The error number that kills the process instead of returning an error.
constexpr int kKill = -1;

// A file system that kills the process in one operation.
class DeadlyFileSystem : public FaultyFileSystem {
  public:
    DeadlyFileSystem(FileSystem& system, std::size_t failing)
        : FaultyFileSystem(system, failing, EIO) {}

  protected:
    void before_failure() override { raise(SIGKILL); }
};

// Saves twice. Operation `k` of the second save fails in rank 0, the only rank that writes. Rank 0
// reports Event::saved after the second save, and at the end Event::finished with 1 if the
// operation was reached, else with 0.
void save_with_fault(const std::string& folder, std::size_t k, int error,
                     const ReportingJob::Group& group, const ReportingJob::Reporter& report) {
    Training training(
        7, 0, true, group,
        {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 1});
    const LogCapture log;  // failures to remove files are reported
    training.accelerator.save_state();
    const bool is_faulty = group->rank() == 0;
    FaultyFileSystem failing(file_system(), k, error);
    DeadlyFileSystem deadly(file_system(), k);
    FaultyFileSystem& system = error == kKill ? deadly : failing;
    if (is_faulty) replace_file_system(&system);
    try {
        training.run(1, [&] {
            if (training.counter.batches != 2) return;
            training.accelerator.save_state();
            if (group->rank() == 0) report(Event::saved, 1);
        });
    } catch (const Error&) {  // every rank gets the error, and the job continues
    }
    if (!is_faulty) return;
    replace_file_system(nullptr);
    report(Event::finished, system.operations() > k);
}

struct FaultFigures {
    int faults = 0, broken = 0;
};

// Makes each operation of a save on two ranks fail in turn.
void fail_each_operation(int error, FaultFigures& figures) {
    for (std::size_t k = 0;; ++k) {
        SCOPED_TRACE(str("operation ", k, ", error ", error));
        const TemporaryFolder folder(FolderStorage::in_memory);
        ReportingJob job(2, [&](const auto& group, const auto& report) {
            save_with_fault(folder.path(), k, error, group, report);
        });
        bool saved = false, finished = false, reached = error == kKill;
        while (const auto report = job.next()) {
            saved |= report->event == Event::saved;
            if (report->event == Event::finished) finished = true, reached = report->value != 0;
        }
        const bool ended = job.wait(std::chrono::seconds(5));
        EXPECT_TRUE(ended) << "a rank did not end";
        if (finished && !reached) {  // the save has fewer operations
            EXPECT_GT(k, 20u);
            return;
        }
        ++figures.faults;
        const auto latest = accel::latest_good_checkpoint(folder / "checkpoints");
        const bool kept = latest && (!saved || latest->ends_with("/checkpoint_1"));
        EXPECT_TRUE(kept) << latest.value_or("there is no checkpoint");
        figures.broken += !ended || !kept;
        ASSERT_LT(k, 1000u);
    }
}

void expect_checkpoints_after_faults(const std::vector<int>& errors) {
    FaultFigures figures;
    for (const int error : errors) fail_each_operation(error, figures);
    EXPECT_EQ(figures.broken, 0);
    record_figure("faults_of_each_operation_of_a_save", {{"processes", 2},
                                                         {"actions", errors.size()},
                                                         {"faults", figures.faults},
                                                         {"broken", figures.broken}});
}

TEST(FaultySave, LeavesACompleteCheckpointIfAnyOperationKillsTheProcess) {
    expect_checkpoints_after_faults({kKill});
}

TEST(FaultySave, LeavesACompleteCheckpointIfAnyOperationFailsOrKillsTheProcessInALongRun) {
    expect_checkpoints_after_faults({kKill, ENOSPC, EIO, EACCES, EROFS, EINTR, 0});
}

}  // namespace
}  // namespace axle::tests
