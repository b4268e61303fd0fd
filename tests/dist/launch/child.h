// A child process for tests that kill or stop processes.
#pragma once

#include <functional>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fork.h"

namespace axle::tests {

// A child process that runs f (see tests/fork.h), and exits with code 1 if f throws.
class Child {
  public:
    explicit Child(const std::function<void()>& f) : pid_(fork_process()) {
        if (pid_ != 0) return;
        try {
            f();
        } catch (...) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    ~Child() {
        signal(SIGKILL);
        wait();
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    pid_t pid() const { return pid_; }
    void signal(int number) const {
        if (!ended_) ::kill(pid_, number);
    }
    // Returns the status from waitpid.
    int wait() {
        if (!ended_) ::waitpid(pid_, &status_, 0);
        ended_ = true;
        return status_;
    }

  private:
    pid_t pid_;
    int status_ = 0;
    bool ended_ = false;
};

}  // namespace axle::tests
