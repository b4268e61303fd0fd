// Private to dist: intercepts the signals that terminate a launcher, while a job runs.
#pragma once

#include <vector>

#include <signal.h>

#include "dist/transport/owned_fd.h"

namespace axle::dist {

// Blocks SIGPIPE, and SIGINT, SIGTERM, SIGHUP and SIGQUIT unless the process ignores them, in this
// thread. Signal dispositions do not change. The destructor restores the signal mask.
class InterceptedSignals {
  public:
    InterceptedSignals();
    ~InterceptedSignals();
    InterceptedSignals(const InterceptedSignals&) = delete;
    InterceptedSignals& operator=(const InterceptedSignals&) = delete;

    // Returns a descriptor that is readable while a signal is pending.
    int fd() const { return fd_.get(); }
    // Returns and consumes the pending signals.
    std::vector<int> take();
    // Returns the thread's previous signal mask, for use in children.
    const sigset_t& mask_before() const { return before_; }

  private:
    OwnedFd fd_;
    sigset_t before_;
    bool pipe_was_pending_ = false;
};

}  // namespace axle::dist
