#include "accel/state/background_save.h"

#include <utility>

#include <pthread.h>
#include <signal.h>

#include "core/system/log.h"

namespace axle::accel {

BackgroundSave::~BackgroundSave() {
    if (thread_.joinable()) thread_.join();
    if (error_)
        report_error_noexcept(std::exchange(error_, nullptr), {"save_state: "},
                              "; the checkpoint was not saved");
}

void BackgroundSave::start(std::function<void()> save) {
    // The thread inherits a mask that blocks all signals, so that signal handlers run on other
    // threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this, save = std::move(save)] {
            try {
                save();
            } catch (...) {
                error_ = std::current_exception();
            }
        });
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BackgroundSave::wait() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace axle::accel
