// Private to dist: a helper process that kills a launcher's children if the launcher is killed.
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "dist/transport/owned_fd.h"

namespace axle::dist {

// A helper process that kills the process groups of children if the launcher is killed.
// PR_SET_PDEATHSIG would end only the children, not the processes that the children have started.
class ChildProcessGuard {
  public:
    // Starts the helper process. At most `most` process groups can be registered at a time. Throws
    // Error if the system can't create a process or a pipe.
    explicit ChildProcessGuard(std::size_t most);
    ~ChildProcessGuard();
    ChildProcessGuard(const ChildProcessGuard&) = delete;
    ChildProcessGuard& operator=(const ChildProcessGuard&) = delete;

    // Adds a process group. Async-signal-safe, because a child adds its own group between fork and
    // exec.
    void add(pid_t group) const;
    // Removes a process group. Call it before the child is reaped, because the system may later
    // reuse the id of the group.
    void remove(pid_t group) const;
    // Returns the descriptor of the pipe to the helper process. Children must not inherit it.
    int fd() const { return pipe_.get(); }

  private:
    void send(pid_t group) const;

    OwnedFd pipe_;
    pid_t pid_ = -1;
};

}  // namespace axle::dist
