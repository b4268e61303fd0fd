// Tests processes that die or freeze without leaving the job.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/transport/launcher_channel.h"
#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "tests/dist/job.h"
#include "tests/dist/launch/child.h"

namespace axle::tests {
namespace {

using dist::Control;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

void agree(Control& control, std::uint64_t sequence,
           dist::Collective op = dist::Collective::barrier) {
    control.announce_call({.sequence = sequence, .op = op});
    control.wait_for_agreement(0, sequence);
}

std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const CommError& error) {
        return error.what();
    }
    return "";
}

// Returns the function of a rank that agrees once and then waits to be killed.
std::function<void()> victim(const ControlJob& job, int rank) {
    return [&job, rank] {
        const auto control = job.join(rank);
        agree(*control, 1);
        for (;;) ::pause();
    };
}

// Returns the failure text that rank `other` receives when the child `rank` ends.
std::string failure_text_on(const ControlJob& job, int rank, int other,
                            const std::function<void(Child&)>& end) {
    Child child(victim(job, rank));
    const auto control = job.join(other);
    agree(*control, 1);
    end(child);
    return error_of([&] { agree(*control, 2, dist::Collective::all_reduce); });
}

TEST(RankDeath, IsReportedWithRankPidAndHost) {
    const ControlJob job(2);
    pid_t pid = 0;
    const auto begin = dist::Clock::now();
    const std::string text = failure_text_on(job, 1, 0, [&](Child& child) {
        pid = child.pid();
        child.signal(SIGKILL);
    });
    EXPECT_EQ(text,
              str("rank 1 (pid ", pid, ", host ", dist::host_name(), ") died during barrier #1"));
    EXPECT_LT(dist::Clock::now() - begin, seconds(6));
}

TEST(RankDeath, IsReportedToOtherRanksWhenRankZeroDies) {
    const ControlJob job(2);
    EXPECT_THAT(failure_text_on(job, 0, 1, [](Child& child) { child.signal(SIGKILL); }),
                AllOf(HasSubstr("rank 0 (pid "), HasSubstr("died during barrier #1")));
}

TEST(RankDeath, EndsTheJoinOfOtherRanks) {
    const ControlJob job(3);
    Child child([&] {
        std::thread([&] { job.join(1); }).detach();
        ::usleep(500'000);
        ::_exit(3);
    });
    EXPECT_THAT(error_of([&] { job.join(0); }),
                AllOf(HasSubstr("rank 1 (pid "), HasSubstr("died")));
}

TEST(RankDeath, CallsFailureCallbacks) {
    const ControlJob job(2);
    Child child(victim(job, 1));
    const auto control = job.join(0);
    agree(*control, 1);
    std::atomic<bool> woken = false;
    control->on_failure([&] { woken = true; });
    child.signal(SIGKILL);
    const auto deadline = dist::Clock::now() + seconds(6);
    while (!woken && dist::Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(woken);
    EXPECT_THAT(control->failure().value_or(""), HasSubstr("rank 1 (pid "));
    EXPECT_THAT(error_of([&] { control->throw_failure("connection reset"); }),
                HasSubstr("rank 1 (pid "));
}

// The test calls throw_failure() before the failure arrives.
TEST(RankDeath, ReplacesAnEarlierErrorOfASurvivor) {
    const ControlJob job(2);
    Child child(victim(job, 1));
    const auto control = job.join(0);
    agree(*control, 1);
    std::thread killer([&] {
        std::this_thread::sleep_for(milliseconds(200));
        child.signal(SIGKILL);
    });
    EXPECT_THAT(error_of([&] { control->throw_failure("connection reset"); }),
                HasSubstr("rank 1 (pid "));
    killer.join();
}

TEST(RankFreeze, IsReportedWithRankAndActivity) {
    ControlJob job(2);
    job.options.heartbeat_timeout = seconds(1);
    const auto begin = dist::Clock::now();
    EXPECT_THAT(failure_text_on(job, 1, 0, [](Child& child) { child.signal(SIGSTOP); }),
                AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is frozen: no heartbeat for 1"),
                      HasSubstr(" s, last in barrier #1")));
    EXPECT_LT(dist::Clock::now() - begin, seconds(6));
}

TEST(RankFreeze, IsReportedToOtherRanksWhenRankZeroFreezes) {
    ControlJob job(2);
    job.options.heartbeat_timeout = seconds(1);
    EXPECT_THAT(failure_text_on(job, 0, 1, [](Child& child) { child.signal(SIGSTOP); }),
                AllOf(HasSubstr("rank 0 (pid "), HasSubstr("is frozen: no heartbeat for 1"),
                      HasSubstr(" s, last in barrier #1")));
}

TEST(RankFreeze, IsNotReportedForALongComputation) {
    ControlJob job(2);
    job.options.heartbeat_timeout = seconds(1);
    const auto errors = run_job(job, [](Control& control) {
        agree(control, 1);
        if (control.rank() == 1) std::this_thread::sleep_for(seconds(3));
        agree(control, 2);
    });
    EXPECT_THAT(errors, testing::Each(""));
}

// Stops and resumes rank `sleeper`, which must not report the other ranks as frozen when it
// resumes. The other ranks have a long timeout.
void sleep_and_go_on(int sleeper) {
    ControlJob job(2), impatient = job;
    impatient.options.heartbeat_timeout = seconds(3);
    Child child([&] {
        const auto control = impatient.join(sleeper);
        agree(*control, 1);
        agree(*control, 2);
        ::usleep(500'000);
        agree(*control, 3);
    });
    const auto control = job.join(1 - sleeper);
    agree(*control, 1);
    child.signal(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(4500));
    child.signal(SIGCONT);
    EXPECT_EQ(error_of([&] {
                  agree(*control, 2);
                  agree(*control, 3);
              }),
              "");
}
TEST(RankFreeze, IsNotReportedByARankThatWasStopped) { sleep_and_go_on(1); }
TEST(RankFreeze, IsNotReportedByRankZeroAfterItWasStopped) { sleep_and_go_on(0); }

// The launcher's end of the channel. The environment refers to it while the object exists.
class Launcher {
  public:
    Launcher() {
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_);
        ::setenv(dist::kLauncherVariable, std::to_string(ends_[1]).c_str(), 1);
    }
    ~Launcher() {
        ::unsetenv(dist::kLauncherVariable);
        ::close(ends_[0]);
        ::close(ends_[1]);
    }
    Launcher(const Launcher&) = delete;
    Launcher& operator=(const Launcher&) = delete;

    void send(const dist::ChildEnd& end) const {
        const std::string line = to_line(end);
        EXPECT_EQ(::send(ends_[0], line.data(), line.size(), 0), std::ssize(line));
    }
    // Returns the next failure that the launcher receives.
    std::optional<dist::ReportedFailure> next_failure() {
        const timeval patience{6, 0};
        ::setsockopt(ends_[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        for (;;) {
            if (const auto line = lines_.next()) return dist::read_reported_failure(*line);
            std::array<char, 4096> bytes{};
            const auto count = ::recv(ends_[0], bytes.data(), bytes.size(), 0);
            if (count <= 0) return {};
            lines_.add({bytes.data(), static_cast<std::size_t>(count)});
        }
    }

  private:
    int ends_[2] = {-1, -1};
    dist::LineReader lines_;
};

TEST(RankDeath, IsReportedWithTheSignalFromTheLauncher) {
    const ControlJob job(2);
    Child child(victim(job, 1));  // this rank has no launcher
    Launcher launcher;
    const auto control = job.join(0);
    agree(*control, 1);
    child.signal(SIGKILL);
    child.wait();
    std::this_thread::sleep_for(
        milliseconds(50));  // lets the connection close before the launcher reports
    launcher.send({1, child.pid(), SIGKILL, 0});
    EXPECT_THAT(error_of([&] { agree(*control, 2); }),
                HasSubstr(" died: signal 9 (Killed) during barrier #1"));
    const auto failure = launcher.next_failure().value_or(dist::ReportedFailure());
    EXPECT_THAT(failure.text, HasSubstr("signal 9 (Killed)"));
    EXPECT_EQ(failure.rank, 0);
    EXPECT_EQ(failure.failed, 1);
    EXPECT_EQ(failure.op, "barrier");
    EXPECT_EQ(failure.sequence, 1);
}

TEST(RankDeath, IsReportedForRankZeroWithTheSignalFromTheLauncher) {
    const ControlJob job(2);
    Child child(victim(job, 0));
    Launcher launcher;
    const auto control = job.join(1);
    agree(*control, 1);
    child.signal(SIGKILL);
    child.wait();
    std::this_thread::sleep_for(milliseconds(50));
    launcher.send({0, child.pid(), SIGKILL, 0});
    EXPECT_THAT(
        error_of([&] { agree(*control, 2); }),
        AllOf(HasSubstr("rank 0 (pid "), HasSubstr(" died: signal 9 (Killed) during barrier #1")));
    EXPECT_TRUE(launcher.next_failure());
}

TEST(RankDeath, IsReportedWithoutCauseIfTheLauncherSendsNothing) {
    const ControlJob job(2);
    Child child(victim(job, 1));
    const Launcher launcher;
    const auto control = job.join(0);
    agree(*control, 1);
    child.signal(SIGKILL);
    EXPECT_THAT(error_of([&] { agree(*control, 2); }), HasSubstr(") died during barrier #1"));
}

TEST(RankDeath, IsReportedWithTheExitCode) {
    const ControlJob job(2);
    const Launcher launcher;
    const auto errors = run_job(job, [&](Control& control) {
        agree(control, 1);
        if (control.rank() == 0) launcher.send({1, 4242, 0, 3});
        agree(control, 2);
        agree(control, 3, dist::Collective::all_gather_object);
        control.get("nothing", seconds(20));
    });
    EXPECT_THAT(errors, testing::Each(AllOf(HasSubstr("rank 1 (pid "),
                                            HasSubstr("died: exited with code 3 during "))));
}

TEST(RankDeath, IsReportedByTheLauncherBeforeJoining) {
    const ControlJob job(2);
    const Launcher launcher;
    launcher.send({1, 4242, SIGSEGV, 0});
    const auto begin = dist::Clock::now();
    EXPECT_THAT(error_of([&] { job.join(0); }),
                HasSubstr("rank 1 died before it had joined: signal 11 (Segmentation fault)"));
    EXPECT_LT(dist::Clock::now() - begin, seconds(6));
}

// The descriptor's number may refer to another file when a program reads the variable.
TEST(LauncherConnection, IgnoresDescriptorsThatAreNotAChannel) {
    for (const char* number : {"", "x", "-1", "0", "99999", "99999999999999"}) {
        ::setenv(dist::kLauncherVariable, number, 1);
        EXPECT_EQ(error_of([] { agree(*ControlJob(1).join(0), 1); }), "") << number;
    }
    ::unsetenv(dist::kLauncherVariable);
}

}  // namespace
}  // namespace axle::tests
