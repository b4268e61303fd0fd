#include "kernels/thread.h"

#include <utility>

#include <pthread.h>
#include <signal.h>

namespace axle::kernels {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};

// Blocks all signals except kFaults in the calling thread for the lifetime of the object. A new
// thread inherits this mask from its creator.
class BlockSignals {
  public:
    BlockSignals() {
        sigset_t blocked;
        sigfillset(&blocked);
        for (const int fault : kFaults) sigdelset(&blocked, fault);
        pthread_sigmask(SIG_SETMASK, &blocked, &before_);
    }
    ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockSignals(const BlockSignals&) = delete;
    BlockSignals& operator=(const BlockSignals&) = delete;

  private:
    sigset_t before_;
};

}  // namespace

std::thread start_thread(const char* name, std::function<void()> run) {
    const BlockSignals blocked;
    return std::thread([name, run = std::move(run)] {
        pthread_setname_np(pthread_self(), name);
        run();
    });
}

}  // namespace axle::kernels
