// Private to dist: one process started by a launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "dist/launch/child_process_guard.h"
#include "dist/transport/launcher_channel.h"
#include "dist/transport/owned_fd.h"

namespace axle::dist {

// A function that runs in the child process and returns its exit code. It may write the reason of a
// failure, as text or as the value of errno, to the descriptor `reason`. If the parent has several
// threads, the function must not allocate memory before exec.
using ChildWork = std::function<int(int reason)>;

struct ChildPlan {
    int rank = 0, local_rank = 0;
    // Creates the function that runs in the child. `channel` is the descriptor of the child's end
    // of the launcher channel.
    std::function<ChildWork(int channel)> prepare;
    bool becomes_another_program = true;  // whether the function calls exec
};

// A child process. It is the leader of its own process group.
class Child {
  public:
    using Clock = std::chrono::steady_clock;

    struct Surroundings {
        sigset_t mask;           // the signal mask of the child
        OwnedFd out, err;        // the child's stdout and stderr; if empty, they are inherited
        std::vector<int> close;  // descriptors to close in the child
        // Kills the child's process group if this process is killed.
        const ChildProcessGuard& guard;
    };
    // Starts the child. Throws Error if the system can't create a process or a descriptor.
    Child(const ChildPlan& plan, Surroundings surroundings);

    int rank() const { return rank_; }
    pid_t pid() const { return pid_; }
    // Returns a descriptor that becomes readable when the child ends. Returns -1 after reap(), and
    // if the system does not support pidfds.
    int pidfd() const { return pidfd_.get(); }
    // Returns the descriptor of the launcher channel, or -1 after the child has closed it.
    int channel() const { return channel_.get(); }
    // Appends the descriptors that other children must not inherit.
    void append_fds(std::vector<int>& fds) const;

    // Returns whether the child has ended since the previous call. Later calls return false. The
    // child's pid is not reused before reap().
    bool has_just_ended();
    bool is_alive() const { return !ended_; }
    bool is_reaped() const { return reaped_; }
    bool failed() const { return ended_ && (signal_ != 0 || exit_code_ != 0); }
    int signal() const { return signal_; }        // the signal that ended the child, or 0
    int exit_code() const { return exit_code_; }  // 0 if a signal ended the child

    // Sends a signal to the child's process group.
    void signal_group(int signal) const;
    // Sends a signal to the child's process, not to its group, if the child handles or ignores the
    // signal. Returns whether the signal was sent.
    bool signal_if_handled(int signal) const;
    // Waits until the child has ended and frees its pid.
    void reap();

    // Send a line on the launcher channel, and read the child's messages. Neither function waits.
    void send_line(const std::string& line) const;
    void receive_lines();
    const std::optional<ReportedFailure>& reported_failure() const { return reported_failure_; }
    // Returns the text or the errno that the child has written to `reason` (see ChildWork).
    std::string reason() const;

    // Set by JobLaunch: the time of SIGKILL, and how the child ended. was_asked_to_end: a signal to
    // end was sent. was_overdue: SIGKILL was sent after the grace time. ended_by_itself: the child
    // ended before any signal.
    Clock::time_point kill_at = Clock::time_point::max();
    bool was_asked_to_end = false, was_overdue = false, ended_by_itself = false;

  private:
    int rank_;
    pid_t pid_ = -1;
    OwnedFd pidfd_, channel_, reason_;
    LineReader lines_;
    std::optional<ReportedFailure> reported_failure_;
    bool ended_ = false, reaped_ = false;
    int signal_ = 0, exit_code_ = 0;
};

// Reads /proc and returns the process groups with at least one process that is not a zombie.
// Returns an empty set if /proc does not exist.
std::set<pid_t> living_groups();

}  // namespace axle::dist
