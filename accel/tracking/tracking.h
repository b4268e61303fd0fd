// The trackers of one Accelerator, and what keeps their failures from training.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/tracking/tracker.h"

namespace axle::accel {

class Tracking {
  public:
    // ValueError for a name that nobody knows (with the nearest) and where a tracker needs a folder
    // but logging_dir is empty. Trackers of services that need Python are dropped with one warning.
    Tracking(const std::vector<LogWith>& log_with, std::string logging_dir, bool main_process);
    // As finish().
    ~Tracking();
    Tracking(const Tracking&) = delete;
    Tracking& operator=(const Tracking&) = delete;

    // Creates what was asked for by name, starts all and hands them the configuration unless it is
    // null. What a tracker's options lack is a ValueError. A second call finishes what the first
    // began.
    void init(const std::string& project_name, const Tree& config, const Tree& init_kwargs);
    // ValueError if values isn't a map; null is an empty one.
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& log_kwargs);
    // ValueError, with the names there are, unless there are none: then one that does nothing.
    // The reference is good until the next init().
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
