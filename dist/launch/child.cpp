#include "dist/launch/child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr int kReadsAtOnce = 64;  // reads per call, limited in case a child writes continuously

// The following functions, up to run_as_child(), run after fork(), before the work of the child.
// They must not allocate memory or lock a mutex.

void close_from_to(unsigned first, unsigned last) {
    if (first <= last) ::syscall(SYS_close_range, first, last, 0u);
}

void close_all_above_stderr_but(int a, int b) {
    const auto low = static_cast<unsigned>(std::min(a, b));
    const auto high = static_cast<unsigned>(std::max(a, b));
    close_from_to(STDERR_FILENO + 1, low - 1);
    close_from_to(low + 1, high - 1);
    close_from_to(high + 1, UINT_MAX);
}

// Sets stdin of a child to /dev/null, because a background process group that reads from a terminal
// is stopped. If stdin is not a terminal, the child with local rank 0 keeps it.
void choose_stdin(int local_rank) {
    if (local_rank == 0 && ::isatty(STDIN_FILENO) == 0) return;
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0) return;
    ::dup2(null, STDIN_FILENO);
    if (null != STDIN_FILENO) ::close(null);
}

struct ChildSide {
    const ChildPlan& plan;
    const Child::Surroundings& surroundings;
    const ChildWork& work;
    pid_t parent;
    int channel, reason;
};

[[noreturn]] void run_as_child(const ChildSide& side) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != side.parent) ::_exit(1);  // the parent ended before prctl
    // The child itself adds its process group to the guard. If the parent did it, the guard would
    // not kill the child of a parent that is killed first.
    side.surroundings.guard.add(::getpid());
    for (const int fd : side.surroundings.close) ::close(fd);
    choose_stdin(side.plan.local_rank);
    if (side.surroundings.out) ::dup2(side.surroundings.out.get(), STDOUT_FILENO);
    if (side.surroundings.err) ::dup2(side.surroundings.err.get(), STDERR_FILENO);
    if (side.plan.becomes_another_program) {
        close_all_above_stderr_but(side.channel, side.reason);
        ::fcntl(side.channel, F_SETFD, 0);
    } else {
        for (const OwnedFd* end : {&side.surroundings.out, &side.surroundings.err})
            if (*end) ::close(end->get());
    }
    ::pthread_sigmask(SIG_SETMASK, &side.surroundings.mask, nullptr);
    ::_exit(side.work(side.reason));
}

// Returns whether a process handles or ignores a signal. Reads the masks of signals in
// /proc/<pid>/status; returns true if the file does not exist.
bool handles(pid_t pid, int signal) {
    std::ifstream file(str("/proc/", pid, "/status"));
    if (!file) return true;
    std::uint64_t handled = 0;
    for (std::string line; std::getline(file, line);) {
        for (const char* name : {"SigIgn:", "SigCgt:"}) {
            if (line.starts_with(name))
                handled |= std::strtoull(line.c_str() + std::strlen(name), nullptr, 16);
        }
    }
    return (handled >> (signal - 1) & 1) != 0;
}

}  // namespace

Child::Child(const ChildPlan& plan, Surroundings surroundings) : rank_(plan.rank) {
    FdPair channel = make_socket_pair();
    FdPair reason = make_pipe();
    channel_ = std::move(channel.first), reason_ = std::move(reason.first);
    append_fds(surroundings.close);
    const ChildWork work = plan.prepare(channel.second.get());
    const ChildSide side = {plan,       surroundings,         work,
                            ::getpid(), channel.second.get(), reason.second.get()};
    pid_ = ::fork();
    if (pid_ < 0)
        throw Error(str("launch: cannot start a process for rank ", rank_, ": ",
                        std::generic_category().message(errno)));
    if (pid_ == 0) run_as_child(side);
    ::setpgid(pid_, pid_);  // the child calls setpgid too, so neither process has to wait
    const auto pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0u));
    if (pidfd >= 0) pidfd_ = adopt_fd(pidfd, "pidfd");
}

void Child::append_fds(std::vector<int>& fds) const {
    for (const OwnedFd* fd : {&pidfd_, &channel_, &reason_})
        if (*fd) fds.push_back(fd->get());
}

bool Child::has_just_ended() {
    if (ended_) return false;
    siginfo_t info = {};
    const int failed = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (failed != 0 && errno == ECHILD) {  // another thread has reaped the child
        ended_ = reaped_ = true;
        exit_code_ = EXIT_FAILURE;
        return true;
    }
    if (failed != 0 || info.si_pid != pid_) return false;
    ended_ = true;
    (info.si_code == CLD_EXITED ? exit_code_ : signal_) = info.si_status;
    return true;
}

void Child::signal_group(int signal) const {
    if (!reaped_) ::kill(-pid_, signal);
}

bool Child::signal_if_handled(int signal) const {
    if (!is_alive() || !handles(pid_, signal)) return false;
    return ::kill(pid_, signal) == 0;
}

void Child::reap() {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
    ended_ = reaped_ = true;
    pidfd_.reset();
}

void Child::send_line(const std::string& line) const {
    if (channel_) ::send(channel_.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Child::receive_lines() {
    std::array<char, 4096> bytes;
    for (int reads = 0; channel_ && reads < kReadsAtOnce; ++reads) {
        const ssize_t size = ::recv(channel_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) break;
        if (size <= 0) {
            channel_.reset();
            break;
        }
        if (!reported_failure_) lines_.add({bytes.data(), static_cast<std::size_t>(size)});
        while (!reported_failure_) {
            const auto line = lines_.next();
            if (!line) break;
            reported_failure_ = read_reported_failure(*line);
        }
    }
}

std::string Child::reason() const {
    std::string text;
    std::array<char, 4096> bytes;
    while (reason_ && text.size() < kMaxLauncherLine) {
        const ssize_t size = ::read(reason_.get(), bytes.data(), bytes.size());
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) break;
        text.append(bytes.data(), static_cast<std::size_t>(size));
    }
    return text;
}

// Reads the process group of each process from /proc/<pid>/stat: the third field after the name.
// The name is in parentheses and may contain any character. Skips processes that have ended but are
// not reaped.
std::set<pid_t> living_groups() {
    std::set<pid_t> groups;
    std::error_code error;
    for (auto entry = std::filesystem::directory_iterator("/proc", error);
         !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream file(entry->path() / "stat");
        std::string text;
        std::getline(file, text, '\0');
        const std::size_t name_end = text.rfind(')');
        if (name_end == std::string::npos) continue;
        std::istringstream fields(text.substr(name_end + 1));
        char state = 'Z';
        pid_t parent = 0, group = 0;
        if (fields >> state >> parent >> group && state != 'Z' && state != 'X')
            groups.insert(group);
    }
    return groups;
}

}  // namespace axle::dist
