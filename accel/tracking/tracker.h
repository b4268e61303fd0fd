// Trackers: destinations of metrics, with the interface of Accelerate's GeneralTracker, and the
// names for AcceleratorOptions::log_with.
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

// A destination of metrics. The Accelerator reports the first exception of a tracker and continues,
// unless set_error_policy (core/log.h) changes that. Called by one thread.
class Tracker {
  public:
    Tracker() = default;
    Tracker(const Tracker&) = delete;
    Tracker& operator=(const Tracker&) = delete;
    virtual ~Tracker() = default;

    virtual std::string name() const = 0;
    virtual bool requires_logging_directory() const { return false; }
    // Returns whether only the main process calls it; otherwise all processes do.
    virtual bool main_process_only() const { return true; }

    // Called first: open files here.
    virtual void start() {}
    // Receives the run's hyperparameters, a map.
    virtual void store_init_configuration(const Tree&) {}
    // Receives a map of numbers, booleans, strings, tensors and maps of these; ignores values that
    // it can't show. `options` are the options that Accelerator::log() was given for this tracker.
    virtual void log(const Tree& values, std::optional<std::int64_t> step = {},
                     const Tree& options = {}) = 0;
    // Receives a map of images: tensors, or lists of tensors. Integers are from 0 to 255, other
    // values from 0 to 1. The shape is [n, channels, height, width], [channels, height, width],
    // [height, width], or the order given in options["dataformats"], for example "NHWC".
    virtual void log_images(const Tree&, std::optional<std::int64_t> = {}, const Tree& = {}) {}
    // Receives a table. Rows are a list of lists with an element per column.
    virtual void log_table(const std::string&, const std::vector<std::string>&, const Tree&,
                           std::optional<std::int64_t> = {}, const Tree& = {}) {}
    // Called last, once.
    virtual void finish() {}
};

// The arguments for creating a tracker by name.
struct TrackerRun {
    std::string project_name = {};
    std::string logging_dir = {};
    Tree options = {};  // from init_trackers() for this tracker: a map, or null

    // Returns the folder of built-in trackers: logging_dir/project_name.
    std::string folder() const;
};

// A tracker that log_with can name. `create` reads the options and can throw; files are opened by
// Tracker::start().
struct TrackerClass {
    std::string name;
    bool requires_logging_directory = false;
    std::function<std::shared_ptr<Tracker>(const TrackerRun&)> create;
};

// Adds a name for log_with. Logs a warning if it replaces a tracker. Thread-safe. Throws UsageError
// without a name or a create function, and for the name "all".
void register_tracker_class(TrackerClass tracker_class);

// Accelerate's names, in the same order.
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

// An element of log_with: a name or a tracker object.
struct LogWith {
    LogWith(LoggerType type) : name(name_of(type)) {}       // NOLINT
    LogWith(const char* name_) : name(name_) {}             // NOLINT
    LogWith(std::string name_) : name(std::move(name_)) {}  // NOLINT
    template <std::derived_from<Tracker> T>
    LogWith(std::shared_ptr<T> tracker_) : tracker(std::move(tracker_)) {}  // NOLINT

    std::string name = {};
    std::shared_ptr<Tracker> tracker = {};
};

// --- helpers for implementing trackers

// Returns the leaves of a map with their tags: nested maps become "outer/inner", and tensors of one
// element become numbers.
std::vector<Tree::Entry> flattened(const Tree& values);
// Returns the map with each tensor replaced by its value if it has one element, or else by the map
// {"min", "max", "mean", "std"} of its elements.
Tree summarised(const Tree& values);
// Throws ValueError for an option that is not in `known`, and suggests the most similar name.
void check_options(const std::string& tracker, const Tree& options,
                   const std::vector<std::string>& known);
// Returns options["purge_step"], the first step that a resumed run logs again: data from this step
// on is dropped. Throws ValueError if it is not an integer >= 0.
std::optional<std::int64_t> purge_step(const std::string& tracker, const Tree& options);

}  // namespace axle::accel
