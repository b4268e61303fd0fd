// Tests processes that die or freeze without leaving the job.
#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/launcher_channel.h"
#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "tests/dist/job.h"
#include "tests/dist/launch/child.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::Control;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ContainsRegex;
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

// Returns the function of a rank that takes part in one agreement and then waits to be killed.
std::function<void()> victim(const ControlJob& job, int rank) {
    return [&job, rank] {
        const auto control = job.join(rank);
        agree(*control, 1);
        for (;;) ::pause();
    };
}

// Starts rank `rank` as a child process and calls `interrupt` to kill or stop it. Returns the
// failure text that rank `other` receives.
std::string failure_text_on(const ControlJob& job, int rank, int other,
                            const std::function<void(Child&)>& interrupt) {
    Child child(victim(job, rank));
    const auto control = job.join(other);
    agree(*control, 1);
    interrupt(child);
    return error_of([&] { agree(*control, 2, dist::Collective::all_reduce); });
}

TEST(RankDeath, IsReportedWithRankPidAndHost) {
    const ControlJob job(2);
    pid_t pid = 0;
    const std::string text = failure_text_on(job, 1, 0, [&](Child& child) {
        pid = child.pid();
        child.signal(SIGKILL);
    });
    EXPECT_EQ(text,
              str("rank 1 (pid ", pid, ", host ", dist::host_name(), ") died during barrier #1"));
}

TEST(RankDeath, IsReportedToOtherRanksWhenRankZeroDies) {
    const ControlJob job(2);
    EXPECT_THAT(failure_text_on(job, 0, 1, [](Child& child) { child.signal(SIGKILL); }),
                AllOf(HasSubstr("rank 0 (pid "), HasSubstr("died during barrier #1")));
}

// Joins a job as `rank`. Returns the connection without waiting for the other ranks.
dist::Socket join_without_waiting(const ControlJob& job, int rank) {
    const auto deadline = dist::Clock::now() + seconds(20);
    const auto address = dist::resolve("127.0.0.1", job.port).front();
    std::optional<dist::Socket> socket;
    const auto connected = [&] {
        try {
            socket = connect_to(address, deadline);
        } catch (const dist::SocketError&) {
        }
        return socket.has_value();
    };
    // Rank 0 may start later.
    if (!comes_true(connected)) throw CommError("rank 0 does not listen");
    dist::FrameReader in;
    // Returns the next message. It is valid until the next call.
    const auto receive = [&] {
        std::array<char, 4096> bytes{};
        for (;;) {
            if (const auto frame = in.next(dist::Sender::server)) return *frame;
            if (!wait_readable(*socket, deadline)) throw CommError("no reply");
            const auto count = receive_some(*socket, bytes);
            if (count < 0) throw CommError("the connection was closed");
            in.add({bytes.data(), static_cast<std::size_t>(count)});
        }
    };
    dist::Nonces nonces{.client = dist::make_nonce(), .server = {}};
    send_all(*socket, encode(dist::JoinStart{.nonce = nonces.client}), deadline);
    nonces.server = dist::decode<dist::Challenge>(receive().body).nonce;
    dist::JoinRequest join_request{.rank = rank,
                                   .world_size = job.size,
                                   .pid = ::getpid(),
                                   .host = dist::host_name(),
                                   .join_timeout_ms = job.options.join_timeout.count()};
    sign(join_request, dist::key_of(job.environment(rank)), nonces);
    send_all(*socket, encode(join_request), deadline);
    dist::decode<dist::JoinReply>(receive().body);
    return std::move(*socket);
}

TEST(RankDeath, EndsTheJoinOfOtherRanks) {
    const ControlJob job(3);
    Child child([&] {
        const dist::Socket socket = join_without_waiting(job, 1);
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
    const std::future<void> failure = failure_of(*control);
    child.signal(SIGKILL);
    EXPECT_EQ(failure.wait_for(seconds(20)), std::future_status::ready);
    EXPECT_THAT(control->failure().value_or(""), HasSubstr("rank 1 (pid "));
    EXPECT_THAT(error_of([&] { control->throw_failure("connection reset"); }),
                HasSubstr("rank 1 (pid "));
}

// The failure arrives later, and throw_failure() waits for it.
TEST(RankDeath, IsReportedInsteadOfAnEarlierErrorOfAnotherRank) {
    const ControlJob job(2);
    Child child(victim(job, 1));
    const auto control = job.join(0);
    agree(*control, 1);
    std::thread killer([&, waiting = ::gettid()] {
        EXPECT_TRUE(comes_true([&] { return is_blocked(waiting); }));
        child.signal(SIGKILL);
    });
    EXPECT_THAT(error_of([&] { control->throw_failure("connection reset"); }),
                HasSubstr("rank 1 (pid "));
    killer.join();
}

constexpr const char* kFrozenInBarrier =
    "sent no heartbeat for [0-9.]+ s; its last collective was barrier #1$";

TEST(RankFreeze, IsReportedWithRankAndLastCollective) {
    ControlJob job(2);
    job.options.heartbeat_timeout = seconds(1);
    EXPECT_THAT(failure_text_on(job, 1, 0, [](Child& child) { child.signal(SIGSTOP); }),
                AllOf(HasSubstr("rank 1 (pid "), ContainsRegex(kFrozenInBarrier)));
}

TEST(RankFreeze, IsReportedToOtherRanksWhenRankZeroFreezes) {
    ControlJob job(2);
    job.options.heartbeat_timeout = seconds(1);
    EXPECT_THAT(failure_text_on(job, 0, 1, [](Child& child) { child.signal(SIGSTOP); }),
                AllOf(HasSubstr("rank 0 (pid "), ContainsRegex(kFrozenInBarrier)));
}

// Rank 1 makes no call for twice the heartbeat timeout, unless the job fails earlier.
TEST(RankFreeze, IsNotReportedForALongComputation) {
    ControlJob job(2);
    job.options.heartbeat_timeout = seconds(1);
    const auto errors = run_job(job, [&](Control& control) {
        agree(control, 1);
        if (control.rank() == 1) failure_of(control).wait_for(2 * job.options.heartbeat_timeout);
        agree(control, 2);
    });
    EXPECT_THAT(errors, testing::Each(""));
}

// Stops rank `sleeper` for longer than its heartbeat timeout. When this rank resumes, it must not
// report the other rank as frozen. The other rank has a longer timeout, and sends a heartbeat every
// second.
void expect_no_failure_after_stop(int sleeper) {
    ControlJob job(2), impatient = job;
    impatient.options.heartbeat_timeout = seconds(2);
    Child child([&] {
        const auto control = impatient.join(sleeper);
        agree(*control, 1);
        agree(*control, 2);
        // A wrong report would be received within one heartbeat interval.
        failure_of(*control).wait_for(impatient.options.heartbeat_timeout / 4);
        agree(*control, 3);
    });
    const auto control = job.join(1 - sleeper);
    agree(*control, 1);
    child.signal(SIGSTOP);
    failure_of(*control).wait_for(impatient.options.heartbeat_timeout + milliseconds(500));
    child.signal(SIGCONT);
    EXPECT_EQ(error_of([&] {
                  agree(*control, 2);
                  agree(*control, 3);
              }),
              "");
}
TEST(RankFreeze, IsNotReportedByARankThatWasStoppedAndContinued) {
    expect_no_failure_after_stop(1);
}
TEST(RankFreeze, IsNotReportedByRankZeroThatWasStoppedAndContinued) {
    expect_no_failure_after_stop(0);
}

// The launcher's end of the channel. While the object exists, the environment variable of the
// channel contains the descriptor of the other end.
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
    // Returns the next failure that the launcher receives, or nullopt if it receives nothing for 6
    // seconds.
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
    child.wait();  // afterwards the child's connection is closed
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
    EXPECT_THAT(error_of([&] { job.join(0); }),
                HasSubstr("rank 1 died before it had joined: signal 11 (Segmentation fault)"));
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
