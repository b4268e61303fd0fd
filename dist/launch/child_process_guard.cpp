#include "dist/launch/child_process_guard.h"

#include <cerrno>
#include <climits>
#include <span>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr pid_t kQuit = 0;

void close_all_but(int kept) {
    const auto close_range = [](unsigned first, unsigned last) {
        return ::syscall(SYS_close_range, first, last, 0u);
    };
    const auto fd = static_cast<unsigned>(kept);
    if (close_range(0, fd - 1) == 0 && close_range(fd + 1, UINT_MAX) == 0) return;
    for (int other = 0; other < 4096; ++other)
        if (other != kept) ::close(other);
}

// Implements the helper process. Runs in a child that may be forked from a multi-threaded process,
// so it must not allocate memory or lock a mutex. Reads process group ids from the pipe: a positive
// number adds a group, and a negative number removes it. kQuit ends this process without killing
// the groups.
[[noreturn]] void run_guard(int pipe, std::span<pid_t> groups) {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::setpgid(0, 0);
    ::prctl(PR_SET_NAME, "axle guard");
    close_all_but(pipe);
    for (;;) {
        pid_t message = kQuit;
        const ssize_t size = ::read(pipe, &message, sizeof message);
        if (size < 0 && errno == EINTR) continue;
        if (size != static_cast<ssize_t>(sizeof message)) break;
        if (message == kQuit) ::_exit(0);
        const pid_t find = message > 0 ? 0 : -message;
        for (pid_t& group : groups) {
            if (group != find) continue;
            group = message > 0 ? message : 0;
            break;
        }
    }
    for (const pid_t group : groups)
        if (group > 0) ::kill(-group, SIGKILL);
    ::_exit(0);
}

}  // namespace

ChildProcessGuard::ChildProcessGuard(std::size_t most) {
    std::vector<pid_t> groups(most, 0);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw Error(str("launch: cannot create a pipe: ", std::generic_category().message(errno)));
    const OwnedFd reads = adopt_fd(ends[0], "pipe");
    pipe_ = adopt_fd(ends[1], "pipe");
    pid_ = ::fork();
    if (pid_ < 0)
        throw Error(
            str("launch: cannot start a process: ", std::generic_category().message(errno)));
    if (pid_ == 0) run_guard(reads.get(), groups);
}

ChildProcessGuard::~ChildProcessGuard() {
    send(kQuit);
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void ChildProcessGuard::add(pid_t group) const { send(group); }
void ChildProcessGuard::remove(pid_t group) const { send(-group); }

void ChildProcessGuard::send(pid_t group) const {
    while (::write(pipe_.get(), &group, sizeof group) < 0 && errno == EINTR) continue;
}

}  // namespace axle::dist
