// Private to dist: a helper process that kills a launcher's children if the launcher is killed.
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "dist/transport/owned_fd.h"

namespace axle::dist {

// PR_SET_PDEATHSIG ends a child when its launcher dies, but not the processes that the child
// started. The guard process kills the child's whole process group.
class ChildProcessGuard {
  public:
    // Supports at most `most` process groups at a time.
    explicit ChildProcessGuard(std::size_t most);
    ~ChildProcessGuard();
    ChildProcessGuard(const ChildProcessGuard&) = delete;
    ChildProcessGuard& operator=(const ChildProcessGuard&) = delete;

    // Async-signal-safe, so that a child can add its own group before it runs a program.
    void add(pid_t group) const;
    // Must be called before the number of the process group can be reused.
    void remove(pid_t group) const;
    // Returns the descriptor that children must not inherit.
    int fd() const { return pipe_.get(); }

  private:
    void send(pid_t group) const;

    OwnedFd pipe_;
    pid_t pid_ = -1;
};

}  // namespace axle::dist
