// Makes file operations of one rank fail while several ranks save and load, and damages files that
// all ranks load.
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "core/files/file.h"
#include "core/files/file_system.h"
#include "core/files/folder.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/accel/training.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/figures.h"
#include "tests/free_port.h"
#include "tests/log_capture.h"
#include "tests/reporting_job.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using Group = ReportingJob::Group;

constexpr int kRanks = 2;

// Runs f(group, report) on each rank. An expectation that fails in a rank fails the test. Returns
// the sum of the reports.
std::int64_t sum_of_job(const ReportingJob::Rank& f) {
    ReportingJob job(kRanks, [&](const Group& group, const ReportingJob::Reporter& report) {
        f(group, report);
        if (testing::Test::HasFailure()) throw std::runtime_error("failed");
    });
    std::int64_t sum = 0;
    while (const auto report = job.next()) sum += report->value;
    EXPECT_TRUE(job.wait()) << "a rank did not end";
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(job.status(rank), 0) << "rank " << rank;
    return sum;
}

// Makes the Accelerators of this process treat it as the only process of its machine.
void become_machine(dist::ProcessGroup& group) {
    const std::vector<Tree> ports = group.all_gather_object(free_port());
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(ports[0].integer()).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(group.size()).c_str(), 1);
    setenv("RANK", std::to_string(group.rank()).c_str(), 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("LOCAL_RANK", "0", 1);
}

// Calls f on each rank. Returns the texts of the errors by rank, or "" for a rank without an error.
std::vector<std::string> errors_of(dist::ProcessGroup& group, const std::function<void()>& f) {
    std::string error;
    try {
        f();
    } catch (const Error& thrown) {
        error = thrown.what();
    }
    std::vector<std::string> all;
    for (const Tree& text : group.all_gather_object(error)) all.push_back(text.string());
    return all;
}

// Expects that the error of the rank `failing` contains this text. The error of each other rank
// must contain this text and the number of the failing rank.
void expect_shared_error(const std::vector<std::string>& errors, int failing,
                         const std::string& text) {
    const std::string& own = errors[static_cast<std::size_t>(failing)];
    EXPECT_NE(own.find(text), std::string::npos) << own;
    for (int rank = 0; rank < kRanks; ++rank) {
        const std::string& error = errors[static_cast<std::size_t>(rank)];
        const std::string whose = str(": process ", failing, ": ");
        if (rank == failing) continue;
        EXPECT_NE(error.find(whose), std::string::npos) << error;
        EXPECT_NE(error.find(text), std::string::npos) << error;
    }
}

bool anywhere(dist::ProcessGroup& group, bool here) {
    bool found = false;
    for (const Tree& there : group.all_gather_object(here)) found |= there.boolean();
    return found;
}

accel::ProjectConfiguration project_of_machine(const std::string& folder, int rank) {
    return {.project_dir = str(folder, "/machine", rank),
            .automatic_checkpoint_naming = true,
            .total_limit = 1,
            .save_on_each_node = true};
}

// Saves on two machines, while each operation in turn fails on one of them. Rank 0 reports 1 for
// each fault.
void save_with_faults(const std::string& folder, const std::vector<int>& errors, const Group& group,
                      const ReportingJob::Reporter& report) {
    become_machine(*group);
    const LogCapture log;  // failures to remove files are reported
    Training training(7, 0, true, nullptr, project_of_machine(folder, group->rank()));
    accel::Accelerator& accelerator = training.accelerator;
    accelerator.save_state();
    for (const int error : errors)
        for (int failing = 0; failing < kRanks; ++failing)
            for (std::size_t k = 0;; ++k) {
                SCOPED_TRACE(str("error ", error, " in operation ", k, " of rank ", failing));
                const std::int64_t iteration = accelerator.save_iteration();
                const bool fails_here = group->rank() == failing;
                FaultyFileSystem system(file_system(), fails_here ? k : SIZE_MAX, error);
                std::vector<std::string> texts;
                {
                    const ReplacedFileSystem replaced(system);
                    texts = errors_of(*group, [&] { accelerator.save_state(); });
                }
                const bool is_saved = texts[0].empty() && texts[1].empty();
                if (!is_saved)
                    expect_shared_error(texts, failing, std::generic_category().message(error));
                // Loads the newest checkpoint that both machines have.
                accelerator.load_state();
                EXPECT_GE(accelerator.save_iteration(), is_saved ? iteration + 1 : iteration);
                if (!anywhere(*group, fails_here && system.operations() > k)) {
                    EXPECT_TRUE(is_saved);
                    EXPECT_GT(k, 20u);
                    break;
                }
                if (group->rank() == 0) report(Event::saved, 1);
                if (testing::Test::HasFailure()) return;
            }
}

void expect_checkpoints_of_machines(const std::vector<int>& errors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::int64_t faults = sum_of_job([&](const Group& group, const auto& report) {
        save_with_faults(folder.path(), errors, group, report);
    });
    EXPECT_GT(faults, 80);
    record_figure("faults_of_one_of_two_writers",
                  {{"machines", kRanks}, {"errors", errors.size()}, {"faults", faults}});
}

TEST(FaultySave, SucceedsOrThrowsOnEveryMachineAndKeepsACheckpoint) {
    expect_checkpoints_of_machines({EIO});
}
TEST(FaultySave, SucceedsOrThrowsOnEveryMachineAndKeepsACheckpointInALongRun) {
    expect_checkpoints_of_machines({EIO, ENOSPC, EACCES, EROFS, EDQUOT, EINTR, 0});
}

// Loads on two ranks, while each operation that reads fails in turn on one of them. Rank 0 reports
// 1 for each fault.
void load_with_faults(const std::string& folder, const std::vector<int>& errors, const Group& group,
                      const ReportingJob::Reporter& report) {
    Training training(7, 0, true, group,
                      {.project_dir = folder, .automatic_checkpoint_naming = true});
    accel::Accelerator& accelerator = training.accelerator;
    accelerator.save_state();
    training.run(1);
    accelerator.save_state();
    const std::vector<Tensor> saved = snapshot(training);
    training.run(2);
    const std::vector<Tensor> before = snapshot(training);
    for (const int error : errors)
        for (int failing = 0; failing < kRanks; ++failing)
            for (std::size_t k = 0;; ++k) {
                SCOPED_TRACE(str("error ", error, " in read ", k, " of rank ", failing));
                const bool fails_here = group->rank() == failing;
                FailingReads system(file_system(), fails_here ? k : SIZE_MAX, error);
                std::vector<std::string> texts;
                {
                    const ReplacedFileSystem replaced(system);
                    texts = errors_of(*group, [&] { accelerator.load_state(); });
                }
                const bool is_loaded = texts[0].empty() && texts[1].empty();
                if (!is_loaded) {
                    expect_shared_error(texts, failing, folder);
                    expect_same(snapshot(training), before);  // nothing is loaded
                } else {  // the newest checkpoint is loaded, even if a read has failed
                    expect_same(snapshot(training), saved);
                    EXPECT_EQ(accelerator.save_iteration(), 2);
                    training.run(2);
                }
                if (!anywhere(*group, fails_here && system.reads() > k)) {
                    EXPECT_TRUE(is_loaded);
                    EXPECT_GT(k, 50u);
                    break;
                }
                if (group->rank() == 0) report(Event::loaded, 1);
                if (testing::Test::HasFailure()) return;
            }
}

void expect_whole_states(const std::vector<int>& errors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::int64_t faults = sum_of_job([&](const Group& group, const auto& report) {
        load_with_faults(folder.path(), errors, group, report);
    });
    EXPECT_GT(faults, 200);
    record_figure("faults_of_each_read_of_a_load",
                  {{"processes", kRanks}, {"errors", errors.size()}, {"faults", faults}});
}

TEST(FaultyLoad, LoadsTheNewestCheckpointOrThrowsOnEveryRankWithoutChanges) {
    expect_whole_states({EIO});
}

TEST(FaultyLoad, LoadsTheNewestCheckpointOrThrowsOnEveryRankWithoutChangesInALongRun) {
    expect_whole_states({EIO, EACCES, ENOMEM, EINTR, FailingReads::kEnd, 0});
}

// Changes single bits of each file on one of two machines, and loads the checkpoint on both
// machines. Rank 0 reports 1 for each change.
void load_damaged(const std::string& folder, int changes, const Group& group,
                  const ReportingJob::Reporter& report) {
    become_machine(*group);
    Training training(7, 0, true, nullptr, project_of_machine(folder, group->rank()));
    const std::string path = training.accelerator.save_state();
    training.run(1);
    const std::vector<Tensor> before = snapshot(training);
    std::mt19937_64 random(5);  // all ranks use the same seed
    for (const std::string& name : contents_of(path).files)
        for (int failing = 0; failing < kRanks; ++failing)
            for (int i = 0; i < changes; ++i) {
                SCOPED_TRACE(str(name, " of rank ", failing, ", change ", i));
                const std::string file = path + "/" + name;
                const std::string bytes = read_file(file);
                const std::uint64_t bit = random() % (8 * bytes.size());
                std::string changed = bytes;
                changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
                if (group->rank() == failing) std::ofstream(file) << changed;
                const std::vector<std::string> texts =
                    errors_of(*group, [&] { training.accelerator.load_state(path); });
                expect_shared_error(texts, failing, name);
                expect_same(snapshot(training), before);
                if (group->rank() == failing) std::ofstream(file) << bytes;
                if (group->rank() == 0) report(Event::loaded, 1);
                if (testing::Test::HasFailure()) return;
            }
    training.accelerator.load_state(path);
}

void expect_damage_to_be_named(int changes) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::int64_t damages = sum_of_job([&](const Group& group, const auto& report) {
        load_damaged(folder.path(), changes, group, report);
    });
    EXPECT_GE(damages, 8 * kRanks * changes);
    record_figure("damaged_files_of_one_of_two_machines",
                  {{"changes_per_file", changes}, {"damages", damages}});
}

TEST(DamagedCheckpoint, ThrowsAnErrorThatNamesTheFileAndTheRank) { expect_damage_to_be_named(4); }
TEST(DamagedCheckpoint, ThrowsAnErrorThatNamesTheFileAndTheRankInALongRun) {
    expect_damage_to_be_named(64);
}

}  // namespace
}  // namespace axle::tests
