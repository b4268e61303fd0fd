// Private to dist: the signals that ask a launcher to end, taken for the time of a job.
#pragma once

#include <vector>

#include <signal.h>

#include "dist/transport/owned_fd.h"

namespace axle::inline v0::dist {

// Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT in this thread, those that the process ignores aside,
// and SIGPIPE, whose end nobody would understand. No disposition changes; all is as before in the
// destructor.
class TakenSignals {
  public:
    TakenSignals();
    ~TakenSignals();
    TakenSignals(const TakenSignals&) = delete;
    TakenSignals& operator=(const TakenSignals&) = delete;

    // Readable while a signal waits.
    int fd() const { return fd_.get(); }
    // Those that have come.
    std::vector<int> take();
    // What this thread blocked before: for children.
    const sigset_t& mask_before() const { return before_; }

  private:
    OwnedFd fd_;
    sigset_t before_;
    bool pipe_was_pending_ = false;
};

}  // namespace axle::inline v0::dist
