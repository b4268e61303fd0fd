// Makes a rank of a job die, freeze, fail or wait at every failpoint of the library. Builds without
// failpoints must not contain their names.
#include "kernels/failpoint.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <new>
#include <string>

#include <sys/mman.h>

#include "accel/state/checkpoint_folder.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/accel/training.h"
#include "tests/figures.h"
#include "tests/reporting_job.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

#if AXLE_FAILPOINTS

// A flag that this process and its children share.
class SharedFlag {
  public:
    SharedFlag()
        : memory_(mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
          flag_(*new(memory_) std::atomic<bool>(false)) {}
    ~SharedFlag() { munmap(memory_, sizeof(std::atomic<bool>)); }
    SharedFlag(const SharedFlag&) = delete;
    SharedFlag& operator=(const SharedFlag&) = delete;

    std::atomic<bool>& operator*() const { return flag_; }

  private:
    void* memory_;
    std::atomic<bool>& flag_;
};

accel::ProjectConfiguration project_in(const std::string& folder) {
    return {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 1};
}

// Continues from a checkpoint, saves twice, the second time in the background, and leaves the job.
// Rank 0 reports the number of each complete checkpoint.
void load_and_save(const std::string& folder, const ReportingJob::Group& group,
                   const ReportingJob::Reporter& report) {
    Training training(7, 1, true, group, project_in(folder));
    training.accelerator.load_state();
    std::int64_t saves = 0;
    training.run(1, [&] {
        if (++saves > 2) return;
        const std::int64_t iteration = training.accelerator.save_iteration();
        training.accelerator.save_state({}, {.asynchronous = saves == 2});
        training.accelerator.wait_for_saves();
        if (group->rank() == 0) report(Event::saved, iteration);
    });
}

struct Figures {
    int runs = 0, reached = 0, broken = 0;
};

// Runs a job in which a rank performs `action` at a failpoint. All ranks that are not frozen must
// end, and the newest complete checkpoint must be kept.
void run_with(const Failpoint& failpoint, int rank, FailpointAction action, Figures& figures) {
    SCOPED_TRACE(str(failpoint.name, ", rank ", rank, ", action ", static_cast<int>(action)));
    const TemporaryFolder folder(FolderStorage::in_memory);
    ReportingJob first(2, [&](const auto& group, const auto&) {
        Training(7, 0, true, group, project_in(folder.path())).accelerator.save_state();
    });
    ASSERT_TRUE(first.wait());
    const SharedFlag reached;
    ReportingJob job(
        2,
        [&](const auto& group, const auto& report) { load_and_save(folder.path(), group, report); },
        {.join_timeout = std::chrono::seconds(3), .heartbeat_timeout = std::chrono::seconds(1)},
        [&](const dist::Environment& environment) {
            if (environment.rank == rank) set_failpoint(failpoint.name, action, *reached);
        });
    const bool ended =
        job.wait(std::chrono::seconds(20), action == FailpointAction::freeze ? rank : -1);
    EXPECT_TRUE(ended) << "a rank did not end";
    std::int64_t saved = 0;
    while (const auto report = job.next(std::chrono::milliseconds(0))) saved = report->value;
    const auto latest = accel::latest_good_checkpoint(folder / "checkpoints");
    EXPECT_TRUE(latest.has_value()) << "there is no checkpoint";
    const bool kept = latest && accel::checkpoint_number(*latest) >= saved;
    EXPECT_TRUE(kept) << "checkpoint " << saved << " is lost";
    // A job that only waits, or does not reach the failpoint, must not fail.
    const bool succeeds = action == FailpointAction::wait || !*reached;
    for (int r = 0; r < 2 && succeeds; ++r) EXPECT_EQ(job.status(r), 0);
    ++figures.runs;
    figures.reached += *reached;
    figures.broken += !ended || !kept;
}

TEST(Failpoints, BreakNoCheckpointAndBlockNoRankInALongRun) {
    Figures figures;
    for (const Failpoint& failpoint : failpoints()) {
        const int before = figures.reached;
        for (const int rank : {0, 1}) {
            run_with(failpoint, rank, FailpointAction::kill, figures);
            run_with(failpoint, rank, FailpointAction::freeze, figures);
            run_with(failpoint, rank, FailpointAction::wait, figures);
            if (failpoint.may_throw) run_with(failpoint, rank, FailpointAction::fail, figures);
        }
        EXPECT_GT(figures.reached, before) << "no rank has reached " << failpoint.name;
    }
    EXPECT_EQ(figures.broken, 0);
    record_figure("failpoints", {{"failpoints", failpoints().size()},
                                 {"processes", 2},
                                 {"actions", {"kill", "freeze", "wait", "fail"}},
                                 {"runs", figures.runs},
                                 {"runs_that_reached_the_failpoint", figures.reached},
                                 {"broken", figures.broken}});
}

TEST(Failpoints, BreakNoCheckpointAndBlockNoRankWhenTheyKillARank) {
    Figures figures;
    for (const Failpoint& failpoint : failpoints()) {
        const int before = figures.reached;
        for (const int rank : {0, 1}) run_with(failpoint, rank, FailpointAction::kill, figures);
        EXPECT_GT(figures.reached, before) << "no rank has reached " << failpoint.name;
    }
    EXPECT_EQ(figures.broken, 0);
}

#else

TEST(Failpoints, AreAbsentFromBuildsWithoutTheirOption) {
    std::ifstream program("/proc/self/exe", std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(program), {});
    ASSERT_GT(bytes.size(), 100'000u);
    // The text is built at run time, so that this program's binary does not contain it.
    const std::string prefix = std::string("axle fail") + "point: ";
    EXPECT_EQ(bytes.find(prefix), std::string::npos);
}

#endif

}  // namespace
}  // namespace axle::tests
