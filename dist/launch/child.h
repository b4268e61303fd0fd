// Private to dist: one process that a launcher has started.
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

#include "dist/transport/launcher_channel.h"
#include "dist/transport/owned_fd.h"

namespace axle::inline v0::dist {

// What a child does, and its exit code; `reason` is where it may write why it fails. After a fork
// in a process with threads, it allocates nothing on its way to exec.
using ChildWork = std::function<int(int reason)>;

struct ChildPlan {
    int rank = 0, local_rank = 0;
    // The work of a child whose end of the launcher's channel has this number.
    std::function<ChildWork(int channel)> prepare;
    bool becomes_another_program = true;  // the work ends in exec
};

// A process group of its own, led by the child.
class Child {
  public:
    using Clock = std::chrono::steady_clock;

    struct Surroundings {
        sigset_t mask;
        OwnedFd out, err;        // of the child, if they are not this process's
        std::vector<int> close;  // what is this process's alone
    };
    // Error where the system has no more processes or descriptors.
    Child(const ChildPlan& plan, Surroundings surroundings);

    int rank() const { return rank_; }
    pid_t pid() const { return pid_; }
    // Readable when it has ended; -1 where the system doesn't have that.
    int pidfd() const { return pidfd_.get(); }
    int channel() const { return channel_.get(); }
    void list(std::vector<int>& fds) const;

    // Whether it has ended since it was last asked. Its number stays taken until reap().
    bool has_just_ended();
    bool is_alive() const { return !ended_; }
    bool is_reaped() const { return reaped_; }
    bool failed() const { return ended_ && (signal_ != 0 || exit_code_ != 0); }
    int signal() const { return signal_; }        // that ended it, or 0
    int exit_code() const { return exit_code_; }  // 0 if a signal ended it

    // To all of its group.
    void signal_group(int signal) const;
    void reap();

    void tell(const std::string& line) const;
    void hear();
    const std::optional<HeardFailure>& heard() const { return heard_; }
    // What it has written about its end.
    std::string reason() const;

    Clock::time_point kill_at = Clock::time_point::max();
    bool was_told_to_end = false;

  private:
    int rank_;
    pid_t pid_ = -1;
    OwnedFd pidfd_, channel_, reason_;
    LineReader lines_;
    std::optional<HeardFailure> heard_;
    bool ended_ = false, reaped_ = false;
    int signal_ = 0, exit_code_ = 0;
};

// The process groups that have a process which is no zombie, as /proc says; none without a /proc.
std::set<pid_t> living_groups();

}  // namespace axle::inline v0::dist
