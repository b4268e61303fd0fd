// Private to dist: intercepts signals that would terminate a launcher while a job runs.
#pragma once

#include <vector>

#include <signal.h>

#include "dist/transport/owned_fd.h"

namespace axle::dist {

// A scope in which this thread blocks SIGPIPE, and also SIGINT, SIGTERM, SIGHUP, SIGQUIT and
// SIGUSR1 unless the process ignores them. Signal handlers are not changed. The destructor restores
// the signal mask.
class InterceptedSignals {
  public:
    InterceptedSignals();
    ~InterceptedSignals();
    InterceptedSignals(const InterceptedSignals&) = delete;
    InterceptedSignals& operator=(const InterceptedSignals&) = delete;

    // Returns a descriptor that is readable while a signal other than SIGPIPE is pending.
    int fd() const { return fd_.get(); }
    // Removes the pending signals other than SIGPIPE and returns them.
    std::vector<int> take();
    // Returns the thread's previous signal mask, which children restore.
    const sigset_t& mask_before() const { return before_; }

  private:
    OwnedFd fd_;
    sigset_t before_;
    bool pipe_was_pending_ = false;
};

}  // namespace axle::dist
