// Private to accel: the trackers of an Accelerator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/tracking/tracker.h"

namespace axle::accel {

// The last steps that trackers have logged, by the names of the trackers. Checkpoints contain these
// steps.
using LoggedSteps = std::map<std::string, std::int64_t>;

// The trackers of an Accelerator. Calls each tracker on the main process or on all processes
// (Tracker::main_process_only), and reports exceptions of trackers, so that training continues.
// Used by one thread.
class Tracking {
  public:
    // Throws ValueError for an unknown name, and if a tracker needs a folder but logging_dir is
    // empty. Leaves out trackers that need Python, and reports one error for all of them
    // (core/system/log.h).
    Tracking(const std::vector<LogWith>& log_with, std::string logging_dir, bool main_process);
    // Calls finish().
    ~Tracking();
    Tracking(const Tracking&) = delete;
    Tracking& operator=(const Tracking&) = delete;

    // Creates the trackers that are given by name, finishes the trackers of an earlier call, and
    // starts all trackers. Passes them the configuration, unless it is null. Throws ValueError for
    // unknown options, and if `config` or `init_kwargs` is not a map. Throws UsageError if
    // TrackerClass::create returns null.
    void init(const std::string& project_name, const Tree& config, const Tree& init_kwargs);
    // Passes the values to all trackers. Throws ValueError if `values` or `log_kwargs` is not a
    // map; null is treated as an empty map. The first call before init() logs a warning on the main
    // process.
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& log_kwargs);
    // Returns the tracker, valid until the next init(). Its exceptions are reported and not thrown;
    // with `unwrap` they are thrown. Without trackers, returns a tracker that does nothing. Throws
    // ValueError for an unknown name.
    Tracker& get(const std::string& name, bool unwrap);
    // Returns all trackers, as get() does without `unwrap`.
    std::vector<Tracker*> trackers() const;
    // Finishes the trackers and reports their exceptions.
    void finish() noexcept;

    // Returns the last steps that the trackers have logged, to save them in a checkpoint.
    LoggedSteps logged_steps() const;
    // Called after a checkpoint was loaded. `logged` contains the steps in the checkpoint. A
    // tracker that gets its first values after this call continues the data of the earlier run. It
    // keeps the data up to its step in `logged`, and later data up to the step before its first
    // values.
    void resume(LoggedSteps logged);

  private:
    class Guard;

    void warn_before_init();

    std::string logging_dir_;
    bool main_process_;
    std::vector<LogWith> chosen_;  // the elements of log_with, each name once
    std::vector<std::unique_ptr<Guard>> guards_;
    std::unique_ptr<Guard> blank_;
    bool initialized_ = false, warned_ = false;
    bool resumed_ = false;
    LoggedSteps loaded_;  // the loaded steps of trackers that have not logged since the load
};

}  // namespace axle::accel
