#include "dist/launch/keeper.h"

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

namespace axle::inline v0::dist {
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

// In a process that was forked from one with threads: nothing here may allocate or lock. A positive
// number is a new group, a negative one has ended.
[[noreturn]] void keep(int pipe, std::span<pid_t> groups) {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::setpgid(0, 0);
    ::prctl(PR_SET_NAME, "axle keeper");
    close_all_but(pipe);
    for (;;) {
        pid_t told = kQuit;
        const ssize_t size = ::read(pipe, &told, sizeof told);
        if (size < 0 && errno == EINTR) continue;
        if (size != static_cast<ssize_t>(sizeof told)) break;
        if (told == kQuit) ::_exit(0);
        const pid_t find = told > 0 ? 0 : -told;
        for (pid_t& group : groups) {
            if (group != find) continue;
            group = told > 0 ? told : 0;
            break;
        }
    }
    for (const pid_t group : groups)
        if (group > 0) ::kill(-group, SIGKILL);
    ::_exit(0);
}

}  // namespace

Keeper::Keeper(std::size_t most) {
    std::vector<pid_t> groups(most, 0);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw Error(str("launch: no pipe: ", std::generic_category().message(errno)));
    const OwnedFd reads = adopt_fd(ends[0], "pipe");
    pipe_ = adopt_fd(ends[1], "pipe");
    pid_ = ::fork();
    if (pid_ < 0) throw Error(str("launch: no process: ", std::generic_category().message(errno)));
    if (pid_ == 0) keep(reads.get(), groups);
}

Keeper::~Keeper() {
    tell(kQuit);
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void Keeper::add(pid_t group) { tell(group); }
void Keeper::remove(pid_t group) { tell(-group); }

void Keeper::tell(pid_t group) {
    while (::write(pipe_.get(), &group, sizeof group) < 0 && errno == EINTR) continue;
}

}  // namespace axle::inline v0::dist
