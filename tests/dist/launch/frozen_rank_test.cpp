// Tests that a launcher names the rank that is frozen or makes no calls, although the other ranks
// detect the failure and end first.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/ops.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/job_launch.h"
#include "tests/dist/launch/launched.h"
#include "tests/dist/ranks.h"

namespace axle::tests {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

enum class Moment { before_joining, before_the_first_collective, in_a_step, in_a_collective };
enum class How { stopped, stuck };  // stuck: the main thread makes no calls, but the process runs

struct Job {
    Moment moment;
    How how;
    int size, victim;
    std::string folder;
    int port;
};

std::string pid_file(const Job& job, int rank) { return str(job.folder, "/pid", rank); }
std::string joined_file(const Job& job, int rank) { return str(job.folder, "/joined", rank); }

// Stops this process, or blocks this thread forever.
void freeze(How how) {
    if (how == How::stopped) kill(getpid(), SIGSTOP);
    for (;;) pause();
}

// Runs two collectives, and a third collective that the victim does not complete. The victim can
// also freeze before it joins, or before the first collective.
void run_rank(const Job& job, int rank) {
    std::ofstream(pid_file(job, rank)) << getpid() << '\n';
    const bool is_victim = rank == job.victim;
    if (is_victim && job.moment == Moment::before_joining) freeze(job.how);
    const bool is_late = job.moment == Moment::before_joining;
    const auto group = dist::ProcessGroup::create(environment_of(rank, job.size, job.port),
                                                  {.timeout = job.how == How::stuck ? 3s : 60s,
                                                   .join_timeout = is_late ? 3s : 30s,
                                                   .heartbeat_timeout = 2s});
    const Tensor x = ones({1000});
    std::ofstream(joined_file(job, rank)) << '\n';
    if (is_victim && job.moment == Moment::before_the_first_collective) {
        // If rank 0 stopped earlier, other ranks would not get its message that all have joined.
        for (int other = 0; other < job.size; ++other)
            comes_true([&] { return std::filesystem::exists(joined_file(job, other)); });
        freeze(job.how);
    }
    if (job.moment != Moment::before_the_first_collective)
        for (int step = 0; step < 2; ++step) group->all_reduce(x);
    if (is_victim) {
        if (job.moment == Moment::in_a_collective) group->all_reduce_async(x);
        freeze(job.how);
    }
    const pid_t victim = wait_for_pid(pid_file(job, job.victim));
    if (job.how == How::stopped) comes_true([&] { return state_of(victim) == 'T'; });
    group->all_reduce(x);
}

// Starts the ranks as a launcher does, and prints the failure as JSON. Returns the exit code of the
// launcher.
int run_launcher(const Job& job) {
    std::vector<dist::ChildPlan> plans;
    for (int rank = 0; rank < job.size; ++rank) {
        dist::ChildPlan plan{.rank = rank, .local_rank = rank, .prepare = {}};
        plan.becomes_another_program = false;
        plan.prepare = [&job, rank](int channel) {
            return [&job, rank, channel](int) {
                setenv(dist::kLauncherVariable, std::to_string(channel).c_str(), 1);
                try {
                    run_rank(job, rank);
                } catch (const CommError&) {
                    return 1;
                }
                return 0;
            };
        };
        plans.push_back(std::move(plan));
    }
    dist::InterceptedSignals signals;
    dist::JobLaunchOptions options;
    options.patience = 100ms;
    const auto result = dist::JobLaunch(options, signals, plans).run();
    std::printf("%s\n", result.failure.to_json().c_str());
    std::fflush(stdout);
    return result.exit_code;
}

// Returns the text that the launcher writes after the name of the victim.
std::string words_of(const Job& job) {
    if (job.moment == Moment::before_joining) return job.victim == 0 ? "not reachable" : "not join";
    if (job.how == How::stuck) return " is alive but did not call all_reduce #";
    return " sent no heartbeat for ";
}
std::string last_collective_of(const Job& job) {
    switch (job.moment) {
        case Moment::before_joining:
            return "join: rank ";
        case Moment::before_the_first_collective:
            return "; it has called no collective";
        case Moment::in_a_step:
            return "; its last collective was all_reduce #2";
        default:
            // Other ranks receive the number of rank 0's last collective with its heartbeat. They
            // do not get the number of a collective after the last heartbeat.
            return job.victim == 0 ? "; its last collective was all_reduce #"
                                   : "; its last collective was all_reduce #3";
    }
}

class FrozenRank : public testing::TestWithParam<std::pair<Moment, How>> {};

// The jobs of all sizes and victims run at the same time, because they mostly wait.
TEST_P(FrozenRank, IsNamedByTheLauncher) {
    const auto [moment, how] = GetParam();
    std::vector<std::unique_ptr<TemporaryFolder>> folders;
    std::vector<Job> jobs;
    for (int size = 2; size <= 4; ++size) {
        for (int victim = 0; victim < size; ++victim) {
            folders.push_back(std::make_unique<TemporaryFolder>(FolderStorage::in_memory));
            jobs.push_back({moment, how, size, victim, folders.back()->path(), free_port()});
        }
    }
    std::vector<pid_t> launchers;
    for (const Job& job : jobs)
        launchers.push_back(start_process(job.folder, [&] { return run_launcher(job); }));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const Job& job = jobs[i];
        SCOPED_TRACE(str("rank ", job.victim, " of ", job.size));
        EXPECT_EQ(wait_for_process(launchers[i]), 1);
        const auto lines = lines_in(job.folder + "/out");
        ASSERT_EQ(lines.size(), 1u);
        SCOPED_TRACE(lines[0]);
        const Tree json = from_json(lines[0]);
        EXPECT_EQ(json["rank"].integer(), job.victim);
        EXPECT_EQ(json["pid"].integer(), wait_for_pid(pid_file(job, job.victim)));
        EXPECT_EQ(json["signal"].integer(), 0);
        EXPECT_EQ(json["exit_code"].integer(), 0);
        EXPECT_THAT(json["text"].string(),
                    AllOf(HasSubstr(str("rank ", job.victim)), HasSubstr(words_of(job)),
                          HasSubstr(last_collective_of(job))));
    }
}

std::string title(const testing::TestParamInfo<FrozenRank::ParamType>& named) {
    const auto [moment, how] = named.param;
    const char* const moments[] = {"BeforeJoining", "BeforeTheFirstCollective", "InAStep",
                                   "InACollective"};
    return str(how == How::stopped ? "Stopped" : "Stuck", moments[static_cast<int>(moment)]);
}

INSTANTIATE_TEST_SUITE_P(Processes, FrozenRank,
                         testing::Values(std::pair(Moment::before_joining, How::stopped),
                                         std::pair(Moment::before_the_first_collective,
                                                   How::stopped),
                                         std::pair(Moment::in_a_step, How::stopped),
                                         std::pair(Moment::in_a_collective, How::stopped),
                                         std::pair(Moment::before_the_first_collective, How::stuck),
                                         std::pair(Moment::in_a_step, How::stuck)),
                         title);

}  // namespace
}  // namespace axle::tests
