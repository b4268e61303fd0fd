// Limits the size of files, to simulate a full disk.
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace axle::tests {

// Limits the size of files that this process writes while the object exists. Writes beyond the
// limit fail with EFBIG; on a full disk they would fail with ENOSPC.
class FullDisk {
  public:
    explicit FullDisk(rlim_t bytes) {
        old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &old_limit_);
        const rlimit limit{bytes, old_limit_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FullDisk() {
        ::setrlimit(RLIMIT_FSIZE, &old_limit_);
        ::signal(SIGXFSZ, old_handler_);
    }

  private:
    rlimit old_limit_ = {};
    void (*old_handler_)(int) = nullptr;
};

}  // namespace axle::tests
