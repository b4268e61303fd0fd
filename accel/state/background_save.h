// Private to accel: a save that a background thread completes.
#pragma once

#include <exception>
#include <functional>
#include <thread>

namespace axle::accel {

// Runs saves on a background thread, one at a time. Used by one thread.
class BackgroundSave {
  public:
    BackgroundSave() = default;
    // Waits for the save. Handles an error according to the error policy (core/system/log.h) and
    // does not throw.
    ~BackgroundSave();
    BackgroundSave(const BackgroundSave&) = delete;
    BackgroundSave& operator=(const BackgroundSave&) = delete;

    // Calls `save` on a new thread. Call wait() first if an earlier save was started.
    void start(std::function<void()> save);
    // Waits until no save is in progress. If the last save failed, the first call throws its error.
    void wait();

  private:
    std::thread thread_;
    std::exception_ptr error_;
};

}  // namespace axle::accel
