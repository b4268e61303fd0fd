// Private to accel: the trackers of an Accelerator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/tracking/tracker.h"

namespace axle::accel {

// Creates trackers, calls them on the processes that they use, and reports their exceptions so that
// training continues. Used by one thread.
class Tracking {
  public:
    // Throws ValueError for an unknown name, and if a tracker needs a folder but logging_dir is
    // empty. Logs one warning for trackers that need Python, which are left out.
    Tracking(const std::vector<LogWith>& log_with, std::string logging_dir, bool main_process);
    // Calls finish().
    ~Tracking();
    Tracking(const Tracking&) = delete;
    Tracking& operator=(const Tracking&) = delete;

    // Finishes the trackers of an earlier call, creates those that are given by name, starts all
    // and passes them the configuration, unless it is null. Throws ValueError for unknown options.
    void init(const std::string& project_name, const Tree& config, const Tree& init_kwargs);
    // Throws ValueError if values is not a map; null counts as an empty map.
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& log_kwargs);
    // Returns the tracker, or one that does nothing if there are no trackers; valid until the next
    // init(). Throws ValueError for an unknown name.
    Tracker& get(const std::string& name, bool unwrap);
    std::vector<Tracker*> trackers() const;
    void finish() noexcept;

  private:
    class Guard;

    std::string logging_dir_;
    bool main_process_;
    std::vector<LogWith> chosen_;  // each name once
    std::vector<std::unique_ptr<Guard>> guards_;
    std::unique_ptr<Guard> blank_;
};

}  // namespace axle::accel
