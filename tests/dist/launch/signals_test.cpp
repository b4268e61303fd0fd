// Tests how a launcher handles signals, and processes that end after a checkpoint.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dist/environment/environment.h"
#include "dist/launch/intercepted_signals.h"
#include "dist/launch/job_launch.h"
#include "dist/rendezvous/control.h"
#include "dist/transport/launcher_channel.h"
#include "gmock/gmock.h"
#include "kernels/error.h"
#include "tests/dist/launch/supervised.h"
#include "tests/dist/ranks.h"

namespace axle::dist {
namespace {

using namespace std::chrono_literals;
using namespace tests;  // NOLINT: the test helpers of this folder
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// Returns whether no signal that was sent to the process is pending.
bool has_handled_all_signals(pid_t pid) {
    for (const std::string& line : lines_in(str("/proc/", pid, "/status")))
        if (line.starts_with("ShdPnd:"))
            return line.find_first_of("123456789abcdef", 7) == line.npos;
    return false;
}

class LauncherSignals : public tests::SuperviseTest {
  protected:
    // Returns a script that writes its process id to the file `name`, and a line to the file `got`
    // when it gets the signal `signal`. It ends with `code` when the file `go` exists.
    std::string script(const std::string& name, int signal, const std::string& code) const {
        return str("trap 'echo ", name, " >> ", file("got"), "' ", signal, "; echo $$ > ",
                   file(name), "; while ! test -e ", file("go"), "; do sleep 0.02; done; exit ",
                   code);
    }
    std::vector<std::string> got() const { return lines_in(file("got")); }
    void wait_for_got(std::size_t count) const {
        EXPECT_TRUE(comes_true([&] { return got().size() >= count; }));
    }
    // Expects that the launcher has reported no failure. The shell may write other lines.
    void expect_no_failure() const {
        EXPECT_THAT(err(), testing::Each(testing::Not(HasSubstr("exit_code"))));
    }
    void go() const { std::ofstream(file("go")) << '\n'; }
};

// The fixture of tests in which a process ends with kExitAfterCheckpoint.
using ExitAfterCheckpoint = LauncherSignals;

// The fixture of tests of SIGUSR1, which does not end the job.
using Sigusr1 = LauncherSignals;

TEST_F(LauncherSignals, AreForwardedAndDetermineTheExitCode) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        for (const char* old : {"a", "b", "got", "go"}) std::filesystem::remove(file(old));
        const pid_t launcher = start({script("a", signal, "0"), script("b", signal, "143")});
        wait_for_pid(file("a")), wait_for_pid(file("b"));
        kill(launcher, signal);
        wait_for_got(2);
        go();
        EXPECT_EQ(wait_for_process(launcher), 128 + signal);
        EXPECT_THAT(got(), UnorderedElementsAre("a", "b"));
        expect_no_failure();
    }
}

// Ranks write a checkpoint after the first signal. A second signal must not end them.
TEST_F(LauncherSignals, AreNotForwardedAfterTheFirstSigterm) {
    const pid_t launcher = start({script("a", SIGTERM, "143")});
    wait_for_pid(file("a"));
    kill(launcher, SIGTERM);
    wait_for_got(1);
    kill(launcher, SIGTERM);
    kill(launcher, SIGHUP);
    EXPECT_TRUE(comes_true([&] { return has_handled_all_signals(launcher); }));
    go();
    EXPECT_EQ(wait_for_process(launcher), 128 + SIGTERM);
    EXPECT_THAT(got(), ElementsAre("a"));
}

TEST_F(LauncherSignals, EndProcessesThatDoNotHandleThem) {
    const std::string plain = "echo $$ >> " + file("starts") + "; while :; do sleep 0.02; done";
    const pid_t launcher = start({plain}, {.max_restarts = 3});
    wait_for_pid(file("starts"));
    kill(launcher, SIGTERM);
    EXPECT_EQ(wait_for_process(launcher), 128 + SIGTERM);
    EXPECT_EQ(lines_in(file("starts")).size(), 1u);
    expect_no_failure();
}

TEST_F(LauncherSignals, KillRemainingProcessesAfterTheGraceTime) {
    const pid_t launcher = start({"trap '' TERM; sleep 60 & echo $! > " + file("sleeper") +
                                  "; echo $$ > " + file("shell") + "; wait; wait"},
                                 {.max_restarts = 1, .grace = 200ms});
    const pid_t pids[] = {wait_for_pid(file("sleeper")), wait_for_pid(file("shell"))};
    kill(launcher, SIGTERM);
    EXPECT_EQ(wait_for_process(launcher), 128 + SIGTERM);
    // SIGKILL does not end a process immediately.
    for (const pid_t pid : pids) EXPECT_TRUE(comes_true([&] { return !is_running(pid); }));
    EXPECT_THAT(failure()["text"].string(), HasSubstr(" did not end within 0.2 s and was killed"));
}

TEST_F(LauncherSignals, DoNotHideAFailureWhileProcessesEnd) {
    const pid_t launcher = start({script("a", SIGTERM, "9")}, {.max_restarts = 1});
    wait_for_pid(file("a"));
    kill(launcher, SIGTERM);
    wait_for_got(1);
    go();
    EXPECT_EQ(wait_for_process(launcher), 128 + SIGTERM);
    EXPECT_EQ(failure()["exit_code"].integer(), 9);
}

TEST_F(LauncherSignals, KillProcessesImmediatelyOnASecondSigint) {
    const pid_t launcher =
        start({script("a", SIGINT, "0"), script("b", SIGINT, "0")}, {.grace = 600s});
    const pid_t pids[] = {wait_for_pid(file("a")), wait_for_pid(file("b"))};
    kill(launcher, SIGINT);
    wait_for_got(2);
    kill(launcher, SIGINT);
    EXPECT_EQ(wait_for_process(launcher), 128 + SIGINT);
    for (const pid_t pid : pids) EXPECT_FALSE(is_running(pid));
    expect_no_failure();
}

TEST_F(Sigusr1, IsForwardedRepeatedlyWithoutEndingTheJob) {
    const pid_t launcher = start({script("a", SIGUSR1, "0"), script("b", SIGUSR1, "0")});
    wait_for_pid(file("a")), wait_for_pid(file("b"));
    for (const std::size_t time : {1, 2}) {
        kill(launcher, SIGUSR1);
        wait_for_got(2 * time);
    }
    go();
    EXPECT_EQ(wait_for_process(launcher), 0);
    EXPECT_THAT(got(), UnorderedElementsAre("a", "a", "b", "b"));
}

TEST_F(Sigusr1, IsNotForwardedToProcessesThatItWouldEnd) {
    const pid_t launcher = start({script("a", SIGTERM, "0"), script("b", SIGUSR1, "0")});
    wait_for_pid(file("a")), wait_for_pid(file("b"));
    kill(launcher, SIGUSR1);
    wait_for_got(1);
    go();
    EXPECT_EQ(wait_for_process(launcher), 0);
    ASSERT_EQ(err().size(), 1u);
    EXPECT_THAT(err()[0], HasSubstr("SIGUSR1 is not forwarded to rank 0"));
}

// Rank 0 continues for a short time after rank 1 has ended.
TEST_F(ExitAfterCheckpoint, GivesOtherRanksTheGraceTime) {
    const std::string start = "echo $RANK >> " + file("starts") + "; ";
    EXPECT_EQ(run({start + "trap 'echo asked; exit 1' TERM; while ! test -e " + file("ended") +
                       "; do sleep 0.02; done; sleep 0.5; echo saved; exit 143",
                   start + "touch " + file("ended") + "; exit 143"},
                  {.max_restarts = 3, .patience = 10ms, .grace = 60s}),
              kExitAfterCheckpoint);
    EXPECT_THAT(out(), ElementsAre("saved"));
    expect_no_failure();
    EXPECT_EQ(lines_in(file("starts")).size(), 2u);
}

TEST_F(ExitAfterCheckpoint, EndsTheJobAfterTheGraceTime) {
    EXPECT_EQ(run({"while :; do sleep 0.02; done", "exit 143"}, {.grace = 100ms}),
              kExitAfterCheckpoint);
}

// Rank 0 exits with kExitAfterCheckpoint only because the launcher stops it after rank 1 has
// failed, so the job is restarted.
TEST_F(ExitAfterCheckpoint, DoesNotPreventARestartAfterAFailure) {
    EXPECT_EQ(
        run({"trap 'exit 143' TERM; touch " + file("ready") + "; while :; do sleep 0.02; done",
             "echo start >> " + file("starts") + "; while ! test -e " + file("ready") +
                 "; do sleep 0.02; done; exit 5"},
            {.max_restarts = 1, .patience = 10ms}),
        5);
    EXPECT_EQ(lines_in(file("starts")).size(), 2u);
}

// The program of a rank. Rank 1 ends after a barrier. Then rank 0 uses the key-value store of the
// job for a short time.
int end_after_checkpoint(int rank, int port, const std::string& pid_file) {
    if (rank == 1) std::ofstream(pid_file) << getpid() << '\n';
    ControlOptions options;
    options.timeout = options.join_timeout = 30s;
    options.heartbeat_timeout = 8s;
    const auto control = Control::join(tests::environment_of(rank, 2, port), options);
    control->announce_call({.sequence = 1, .op = Collective::barrier});
    control->wait_for_agreement(0, 1);
    if (rank == 1) return kExitAfterCheckpoint;
    const pid_t other = wait_for_pid(pid_file);
    comes_true([&] { return !is_running(other); });
    for (int i = 0; i < 300; ++i) {
        std::this_thread::sleep_for(1ms);
        control->set("key", "value");
    }
    return kExitAfterCheckpoint;
}

TEST_F(ExitAfterCheckpoint, IsNotAFailureForOtherRanks) {
    const int port = free_port();
    const pid_t launcher = start_process(folder_.path(), [&] {
        std::vector<ChildPlan> plans;
        for (int rank = 0; rank < 2; ++rank) {
            plans.push_back({.rank = rank, .local_rank = rank, .prepare = {}});
            plans.back().becomes_another_program = false;
            plans.back().prepare = [&, rank](int channel) {
                return [&, rank, channel](int) {
                    ::setenv(kLauncherVariable, std::to_string(channel).c_str(), 1);
                    try {
                        return end_after_checkpoint(rank, port, file("pid"));
                    } catch (const CommError&) {
                        return 1;
                    }
                };
            };
        }
        InterceptedSignals signals;
        const JobLaunchResult result = JobLaunch({}, signals, plans).run();
        std::printf("%s\n", result.failure.to_json().c_str());
        std::fflush(stdout);
        return result.failed ? 1 : result.exit_code;
    });
    EXPECT_EQ(wait_for_process(launcher), kExitAfterCheckpoint) << out().back();
}

TEST_F(LauncherSignals, MakeLaunchThrowWithTheSignal) {
    const pid_t launcher = start_process(folder_.path(), [&] {
        launch({.num_processes = 2, .max_restarts = 1}, [&] {
            std::ofstream(file(str("pid", std::getenv("RANK")))) << getpid() << '\n';
            for (;;) pause();
        });
        return 0;
    });
    wait_for_pid(file("pid0")), wait_for_pid(file("pid1"));
    kill(launcher, SIGTERM);
    EXPECT_EQ(wait_for_process(launcher), kThrew);
    EXPECT_THAT(err(), ElementsAre("launch: signal 15 (Terminated) has stopped the job"));
}

}  // namespace
}  // namespace axle::dist
