// Trackers: where metrics go. The interface of Accelerate's GeneralTracker, and the names that
// AcceleratorOptions::log_with understands.
//
//     struct Console : axle::accel::Tracker {
//         std::string name() const override { return "console"; }
//         void log(const Tree& values, std::optional<std::int64_t> step, const Tree&) override {
//             std::cout << step.value_or(0) << ' ' << values << '\n';
//         }
//     };
//     axle::Accelerator accelerator(
//         {.log_with = {"tensorboard", std::make_shared<Console>()}, .project_dir = "runs"});
//     accelerator.init_trackers("gpt", {{"lr", 3e-4}});
//     accelerator.log({{"loss", loss}}, step);
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::accel {

// What a tracker throws is its own matter: the Accelerator reports it once and goes on, unless
// set_error_policy (core/log.h) says otherwise. Called by one thread at a time.
class Tracker {
  public:
    Tracker() = default;
    Tracker(const Tracker&) = delete;
    Tracker& operator=(const Tracker&) = delete;
    virtual ~Tracker() = default;

    virtual std::string name() const = 0;
    virtual bool requires_logging_directory() const { return false; }
    // false: every process calls it, else the main process alone.
    virtual bool main_process_only() const { return true; }

    // Before all that follows; the place to open files.
    virtual void start() {}
    // The run's hyperparameters, a map.
    virtual void store_init_configuration(const Tree&) {}
    // A map of numbers, booleans, strings, tensors and maps of those. A tracker leaves out what it
    // can't show. `options` are those of Accelerator::log for this tracker.
    virtual void log(const Tree& values, std::optional<std::int64_t> step = {},
                     const Tree& options = {}) = 0;
    // A map of images: tensors, or lists of them. Integers from 0 to 255, others from 0 to 1, shape
    // [n, channels, height, width], [channels, height, width] or [height, width], or as
    // options["dataformats"] says, as in "NHWC".
    virtual void log_images(const Tree&, std::optional<std::int64_t> = {}, const Tree& = {}) {}
    // Rows are a list of lists, one element a column.
    virtual void log_table(const std::string&, const std::vector<std::string>&, const Tree&,
                           std::optional<std::int64_t> = {}, const Tree& = {}) {}
    // After all that precedes, once.
    virtual void finish() {}
};

// What a tracker that is asked for by name is made from.
struct TrackerRun {
    std::string project_name = {};
    std::string logging_dir = {};
    Tree options = {};  // of Accelerator::init_trackers for this tracker: a map, or null

    // Where built-in trackers write: logging_dir/project_name.
    std::string folder() const;
};

// An entry of the list of names. `create` reads the options, and may throw for a wrong one; it
// leaves opening to Tracker::start.
struct TrackerClass {
    std::string name;
    bool requires_logging_directory = false;
    std::function<std::shared_ptr<Tracker>(const TrackerRun&)> create;
};

// Makes a name known to log_with. Replacing one that is there is said on the log sink. From any
// thread. UsageError without a name or a way to create, or for the name "all".
void register_tracker_class(TrackerClass tracker_class);

// Accelerate's names, in its order.
enum class LoggerType : std::uint8_t {
    all,
    aim,
    tensorboard,
    wandb,
    trackio,
    comet_ml,
    mlflow,
    clearml,
    dvclive,
    swanlab,
};
const char* name_of(LoggerType type);

// One choice of log_with: a name, or a tracker of the user's own.
struct LogWith {
    LogWith(LoggerType type) : name(name_of(type)) {}       // NOLINT
    LogWith(const char* name_) : name(name_) {}             // NOLINT
    LogWith(std::string name_) : name(std::move(name_)) {}  // NOLINT
    template <std::derived_from<Tracker> T>
    LogWith(std::shared_ptr<T> tracker_) : tracker(std::move(tracker_)) {}  // NOLINT

    std::string name = {};
    std::shared_ptr<Tracker> tracker = {};
};

// --- for those who write trackers

// The leaves of a map, by tag: nested maps become "outer/inner", tensors of one element numbers.
std::vector<Tree::Entry> flattened(const Tree& values);
// The same map with each tensor told in numbers: itself if it has one element, else the map
// {"min", "max", "mean", "std"} of its elements.
Tree summarised(const Tree& values);
// ValueError for an option that isn't among those known, with the nearest.
void check_options(const std::string& tracker, const Tree& options,
                   const std::vector<std::string>& known);
// options["purge_step"]: the first step that a resumed run will log again. What was logged from
// this step on is dropped. A step from 0 on, else ValueError.
std::optional<std::int64_t> purge_step(const std::string& tracker, const Tree& options);

}  // namespace axle::accel
