// Tests that writes to a peer that has closed its end raise no SIGPIPE in a host program with
// default signal handling.
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/ops.h"
#include "dist/group/process_group.h"
#include "dist/transport/launcher_connection.h"
#include "dist/transport/socket.h"
#include "tests/dist/ranks.h"
#include "tests/environment_variable.h"
#include "tests/fork.h"
#include "tests/free_port.h"

namespace axle::tests {
namespace {

using namespace std::chrono_literals;
using dist::Clock;
using dist::Socket;
using dist::SocketError;
using testing::IsSupersetOf;

// Calls f in a child process with the default SIGPIPE handling and returns its wait status. The
// exit code is 0 if f returns true.
int status_in_child(const std::function<bool()>& f) {
    const pid_t child = fork_process();
    if (child == 0) {
        ::alarm(60);
        std::signal(SIGPIPE, SIG_DFL);
        sigset_t pipe;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
        ::_exit(f() ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
}

struct Pair {
    Pair() {
        int ends[2] = {-1, -1};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
            throw std::runtime_error("cannot create a pair of sockets");
        one = Socket(ends[0]), two = Socket(ends[1]);
    }
    Socket one, two;
};

// Returns a TCP connection whose peer has closed its end without reading the bytes that it
// received.
Socket tcp_socket_without_peer() {
    const Socket listener = dist::listen_at(dist::resolve("127.0.0.1", 0).front());
    Socket socket = dist::connect_to(dist::own_address(listener), Clock::now() + 20s);
    dist::wait_readable(listener, Clock::now() + 20s);
    const Socket peer = dist::accept_from(listener);
    dist::send_all(socket, "bytes", Clock::now() + 20s);
    dist::wait_readable(peer, Clock::now() + 20s);
    return socket;
}

// Checks that the tests would detect a SIGPIPE.
TEST(SigPipe, EndsAChildThatCallsWriteAfterThePeerClosed) {
    const int status = status_in_child([] {
        Pair pair;
        pair.two = Socket();
        return ::write(pair.one.descriptor(), "x", 1) < 0;
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
}

TEST(SigPipe, IsNotRaisedByWritesAfterThePeerClosed) {
    EXPECT_EQ(status_in_child([] {
                  const Socket socket = tcp_socket_without_peer();
                  dist::wait_readable(socket, Clock::now() + 20s);
                  int errors = 0;
                  for (int i = 0; i < 3; ++i) try {  // the first error may be ECONNRESET
                          dist::send_all(socket, "bytes", Clock::now() + 20s);
                      } catch (const SocketError& error) {
                          errors += error.code == EPIPE || error.code == ECONNRESET ? 1 : 0;
                      }
                  return errors >= 2 && dist::send_some(socket, "bytes") == -1;
              }),
              0);
}

TEST(SigPipe, IsNotRaisedByReportsToALauncherThatHasEnded) {
    EXPECT_EQ(status_in_child([] {
                  Pair pair;
                  const EnvironmentVariable variable(dist::kLauncherVariable,
                                                     std::to_string(pair.one.descriptor()).c_str());
                  const dist::LauncherConnection launcher;
                  dist::ReportedFailure failure;
                  failure.text = "a failure";
                  pair.two = Socket();
                  for (int i = 0; i < 3; ++i) launcher.write(failure);
                  return launcher.is_open();
              }),
              0);
}

// Rank 1 dies while rank 0 sends, so that rank 0 writes to connections that are closed.
TEST(SigPipe, IsNotRaisedInAGroupWhoseOtherRankDies) {
    const int port = free_port();
    const auto run_rank = [port](int rank, int calls) {
        try {
            const auto group =
                dist::ProcessGroup::create(environment_of(rank, 2, port), short_options());
            for (int i = 0; i < calls; ++i) group->all_reduce(ones({1 << 18}));
            ::raise(SIGKILL);
        } catch (const CommError&) {
            return true;
        }
        return false;
    };
    const pid_t other = fork_process();
    if (other == 0) ::_exit(run_rank(1, 5) ? 0 : 1);
    EXPECT_EQ(status_in_child([&] { return run_rank(0, INT_MAX); }), 0);
    int status = -1;
    ::waitpid(other, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

// Returns the names of this process's threads that begin with "axle". If `unblocked` is true,
// returns only names of threads that do not block SIGPIPE.
std::set<std::string> own_threads(bool unblocked) {
    std::set<std::string> names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream status(task.path() / "status");
        std::string name;
        std::uint64_t blocked = 0;
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("Name:\t")) name = line.substr(6);
            if (line.starts_with("SigBlk:\t")) blocked = std::stoull(line.substr(8), nullptr, 16);
        }
        const bool blocks = (blocked >> (SIGPIPE - 1) & 1) != 0;
        if (name.starts_with("axle") && !(unblocked && blocks)) names.insert(name);
    }
    return names;
}

TEST(SigPipe, IsBlockedInEachThreadOfAGroup) {
    std::set<std::string> names, unblocked;
    on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        group->all_reduce(ones({4}));
        if (group->rank() == 0) names = own_threads(false), unblocked = own_threads(true);
        group->barrier();
    });
    EXPECT_THAT(names, IsSupersetOf({"axle server", "axle control", "axle dist", "axle-tcp"}));
    EXPECT_THAT(unblocked, testing::IsEmpty());
}

}  // namespace
}  // namespace axle::tests
