// Limits the size of files, to simulate a full disk.
#pragma once

#include <csignal>

#include <sys/resource.h>

namespace axle::tests {

// While the object exists, this process cannot write files of more than `bytes` bytes.
class FullDisk {
  public:
    explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit = {bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FullDisk() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    void (*handler_)(int);
    rlimit before_ = {};
};

}  // namespace axle::tests
