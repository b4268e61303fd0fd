#include "dist/launch/intercepted_signals.h"

#include <ctime>

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace axle::dist {
namespace {

bool is_ignored(int signal) {
    struct sigaction action = {};
    return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
           action.sa_handler == SIG_IGN;
}

bool is_pending(int signal) {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
}

}  // namespace

InterceptedSignals::InterceptedSignals() : pipe_was_pending_(is_pending(SIGPIPE)) {
    sigset_t asked;
    sigemptyset(&asked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1})
        if (!is_ignored(signal)) sigaddset(&asked, signal);
    fd_ = adopt_fd(::signalfd(-1, &asked, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd");
    sigaddset(&asked, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &asked, &before_);
}

InterceptedSignals::~InterceptedSignals() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    constexpr std::timespec kAtOnce = {};
    if (!pipe_was_pending_ && is_pending(SIGPIPE)) ::sigtimedwait(&pipe, nullptr, &kAtOnce);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> InterceptedSignals::take() {
    std::vector<int> taken;
    signalfd_siginfo info;
    while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        taken.push_back(static_cast<int>(info.ssi_signo));
    return taken;
}

}  // namespace axle::dist
