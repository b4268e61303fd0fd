// Tests that the surviving processes report a dead or frozen process and end.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "dist/group/process_group.h"
#include "nlohmann/json.hpp"
#include "tests/figures.h"
#include "tests/job.h"
#include "tests/temporary_folder.h"
#include "tests/wait.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Job;
using tests::RankOutcome;
using tests::TemporaryFolder;

// The moment at which a process is killed or stopped.
enum class Moment { init, forward, collective, save, teardown };
constexpr Moment kMoments[] = {Moment::init, Moment::forward, Moment::collective, Moment::save,
                               Moment::teardown};
const char* name_of(Moment moment) {
    const char* const names[] = {"init", "forward", "collective", "save", "teardown"};
    return names[static_cast<int>(moment)];
}

void fail_now(int signal) {
    Job::start_clock();
    kill(getpid(), signal);
}

// An object that a checkpoint contains. It kills or stops the main process while the checkpoint is
// written.
struct FailsWhenSaved : accel::Checkpointable {
    int signal = 0;
    Tree state_dict() const override {
        if (signal != 0) fail_now(signal);
        return Tree{{"ok", true}};
    }
    void load_state_dict(const Tree&) override {}
};

struct PlannedFailure {
    Moment moment;
    int signal, victim;
    std::string folder;
    std::chrono::milliseconds heartbeat_timeout = 2s;
};

// Runs one process: joins, computes, reduces, saves and leaves.
std::string run_rank(const dist::Environment& environment, const PlannedFailure& planned) {
    const bool is_victim = environment.rank == planned.victim;
    const auto at = [&](Moment moment) { return is_victim && planned.moment == moment; };
    if (at(Moment::init)) fail_now(planned.signal);
    auto group = dist::ProcessGroup::create(
        environment,
        {.timeout = 60s, .join_timeout = 3s, .heartbeat_timeout = planned.heartbeat_timeout});
    accel::Accelerator accelerator({.cpu = true, .process_group = group});

    FailsWhenSaved saved;
    if (at(Moment::save)) saved.signal = planned.signal;
    accelerator.register_for_checkpointing(saved);

    const Tensor x = ones({1 << 20});
    std::thread killer;
    for (int step = 0; step < 40; ++step) {
        if (at(Moment::forward) && step == 3) fail_now(planned.signal);
        if (at(Moment::collective) && step == 3)
            killer = std::thread([&, reducing = ::gettid()] {
                tests::comes_true([&] { return tests::is_blocked(reducing); });
                fail_now(planned.signal);
            });
        group->all_reduce(x, dist::ReduceOp::mean);
        // If a rank fails in a collective, all ranks repeat the steps until it fails.
        if (planned.moment == Moment::collective && step == 39) step = 5;
    }
    if (at(Moment::save) && environment.rank != 0) fail_now(planned.signal);
    accelerator.save_state(planned.folder + "/checkpoint");
    group->barrier();
    if (at(Moment::teardown)) fail_now(planned.signal);
    return "done";
}

// Matches the error that survivors throw. If the victim fails before it joins, the survivors report
// that it is missing; otherwise they report that it died or is frozen. Errors after a collective's
// timeout have other texts.
testing::Matcher<std::string> names(int victim, pid_t pid, Moment moment, int signal) {
    using testing::AllOf;
    using testing::HasSubstr;
    if (moment == Moment::init)
        return AllOf(HasSubstr("join: "), HasSubstr(str("rank ", victim)),
                     HasSubstr(" within 3 s"));
    return AllOf(HasSubstr(str("rank ", victim, " (pid ", pid, ", ")),
                 HasSubstr(signal == SIGKILL ? ") died" : ") sent no heartbeat for "));
}

// The test runs the jobs for all victims at the same time, because the jobs mostly wait.
class RankFailure : public testing::TestWithParam<std::tuple<Moment, int, int>> {};

TEST_P(RankFailure, IsReportedByAllSurvivors) {
    const auto [moment, signal, size] = GetParam();
    std::vector<std::unique_ptr<TemporaryFolder>> folders;
    std::vector<std::unique_ptr<Job>> jobs;
    for (int victim = 0; victim < size; ++victim) {
        folders.push_back(std::make_unique<TemporaryFolder>());
        const PlannedFailure planned{moment, signal, victim, folders.back()->path()};
        jobs.push_back(std::make_unique<Job>(
            size, [planned](const dist::Environment& e) { return run_rank(e, planned); }));
    }
    for (int victim = 0; victim < size; ++victim) {
        SCOPED_TRACE(str("victim ", victim));
        Job& job = *jobs[static_cast<std::size_t>(victim)];
        const std::vector<RankOutcome> ended = job.wait(30s, {victim});
        for (int rank = 0; rank < size; ++rank) {
            if (rank == victim) continue;
            const RankOutcome& survivor = ended[static_cast<std::size_t>(rank)];
            SCOPED_TRACE(str("rank ", rank, ": ", survivor.text));
            ASSERT_TRUE(survivor.reported) << "it hung, or was killed: status " << survivor.status;
            if (moment == Moment::teardown && survivor.text == "done") continue;
            EXPECT_THAT(survivor.text, testing::StartsWith("threw: "));
            EXPECT_THAT(survivor.text, names(victim, job.pid(victim), moment, signal));
        }
    }
}

// Runs many jobs with the default heartbeat. Counts how often a survivor hung, ended without an
// error or did not report the victim, and measures how long survivors took to end.
TEST(RankFailures, AreReportedBySurvivorsInALongRun) {
    auto figures = nlohmann::ordered_json::array();
    for (const int signal : {SIGKILL, SIGSTOP})
        for (const int size : {2, 4}) {
            int trials = 0, silent = 0, unnamed = 0;
            std::vector<double> seconds;
            for (int round = 0; round < (signal == SIGKILL ? 40 : 2); ++round)
                for (const Moment moment : {Moment::forward, Moment::collective, Moment::save}) {
                    std::vector<std::unique_ptr<TemporaryFolder>> folders;
                    std::vector<std::unique_ptr<Job>> jobs;
                    for (int victim = 0; victim < size; ++victim) {
                        folders.push_back(std::make_unique<TemporaryFolder>());
                        const PlannedFailure planned{moment, signal, victim, folders.back()->path(),
                                                     8s};
                        jobs.push_back(
                            std::make_unique<Job>(size, [planned](const dist::Environment& e) {
                                return run_rank(e, planned);
                            }));
                        // For SIGSTOP, all jobs start before the test waits, because the survivors
                        // of each job wait for the heartbeat timeout.
                        if (signal == SIGSTOP && victim + 1 < size) continue;
                        for (std::size_t i = 0; i < jobs.size(); ++i) {
                            const int of = signal == SIGSTOP ? static_cast<int>(i) : victim;
                            const auto ended = jobs[i]->wait(60s, {of});
                            ++trials;
                            for (int rank = 0; rank < size; ++rank) {
                                if (rank == of) continue;
                                const RankOutcome& survivor = ended[static_cast<std::size_t>(rank)];
                                silent += survivor.reported ? 0 : 1;
                                unnamed +=
                                    survivor.text.find(str("rank ", of)) == std::string::npos;
                                if (survivor.reported) seconds.push_back(survivor.seconds);
                            }
                        }
                        if (signal == SIGKILL) jobs.clear();
                    }
                }
            std::sort(seconds.begin(), seconds.end());
            EXPECT_EQ(silent, 0);
            EXPECT_EQ(unnamed, 0);
            ASSERT_FALSE(seconds.empty());
            EXPECT_LT(seconds.back(), signal == SIGKILL ? 2 : 10);
            figures.push_back({{"struck_by", signal == SIGKILL ? "SIGKILL" : "SIGSTOP"},
                               {"processes", size},
                               {"trials", trials},
                               {"survivors", seconds.size()},
                               {"silent", silent},
                               {"unnamed", unnamed},
                               {"median_seconds", seconds[seconds.size() / 2]},
                               {"longest_seconds", seconds.back()}});
        }
    tests::record_figure("dead_and_frozen_ranks", figures);
}

std::string title(const testing::TestParamInfo<RankFailure::ParamType>& named) {
    const auto [moment, signal, size] = named.param;
    return str(signal == SIGKILL ? "KilledAt_" : "StoppedAt_", name_of(moment), "_Of", size);
}

INSTANTIATE_TEST_SUITE_P(Processes, RankFailure,
                         testing::Combine(testing::ValuesIn(kMoments),
                                          testing::Values(SIGKILL, SIGSTOP), testing::Values(2, 4)),
                         title);

}  // namespace
}  // namespace axle
