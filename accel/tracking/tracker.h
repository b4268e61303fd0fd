// Trackers: destinations of metrics, with the interface of Accelerate's GeneralTracker, their names
// for AcceleratorOptions::log_with, and helpers for implementing them.
//
//     struct Console : axle::accel::Tracker {
//         std::string name() const override { return "console"; }
//         void log(const axle::Tree& values, std::optional<std::int64_t> step,
//                  const axle::Tree&) override {
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

// A destination of metrics. The Accelerator logs the first exception of a tracker and continues,
// unless set_error_policy (core/system/log.h) changes that. Used by one thread.
class Tracker {
  public:
    Tracker() = default;
    Tracker(const Tracker&) = delete;
    Tracker& operator=(const Tracker&) = delete;
    virtual ~Tracker() = default;

    // Returns the name that selects the tracker in get_tracker() and log_kwargs.
    virtual std::string name() const = 0;
    // Returns whether the tracker needs a folder. If true, the Accelerator's constructor throws
    // ValueError without logging_dir and project_dir.
    virtual bool requires_logging_directory() const { return false; }
    // Returns whether only the main process calls the tracker. If false, all processes call it.
    virtual bool main_process_only() const { return true; }

    // Called by each init_trackers(), before the functions below. A tracker may open its files
    // here.
    virtual void start() {}
    // Called at most once after each start(), before the first values of a run that
    // Accelerator::load_state() has resumed. The run logs values again from step `purge_step` on. A
    // tracker removes its data of this step and later steps, and continues its files. With nullopt
    // the step is unknown, and the tracker keeps its data. Not called in a new run.
    virtual void resume(std::optional<std::int64_t> /*purge_step*/) {}
    // Called with the run's hyperparameters, a map.
    virtual void store_init_configuration(const Tree&) {}
    // Called with a map of numbers, booleans, strings, tensors, and nested maps of these values. A
    // tracker ignores values that it can't show. `options` are the options for this tracker that
    // were passed to Accelerator::log().
    virtual void log(const Tree& values, std::optional<std::int64_t> step = {},
                     const Tree& options = {}) = 0;
    // Called with a map of images, each a tensor or a list of tensors. Integer values are from 0 to
    // 255, floating-point values from 0 to 1. The shape is [n, channels, height, width], [channels,
    // height, width], [height, width], or the order given in options["dataformats"], for example
    // "NHWC".
    virtual void log_images(const Tree&, std::optional<std::int64_t> = {}, const Tree& = {}) {}
    // Called with a table: its name, the names of its columns, and a list of rows. A row is a list
    // with one element per column.
    virtual void log_table(const std::string&, const std::vector<std::string>&, const Tree&,
                           std::optional<std::int64_t> = {}, const Tree& = {}) {}
    // Called after the other calls: by end_training(), by the next init_trackers() and by the
    // destructor of the Accelerator, but only once for each start(). Not called if start() or
    // resume() has failed.
    virtual void finish() {}
};

// The arguments for creating a tracker by name.
struct TrackerRun {
    std::string project_name = {};
    std::string logging_dir = {};
    Tree options = {};  // the options for this tracker from init_trackers(): a map, or null

    // Returns the folder of built-in trackers: logging_dir/project_name.
    std::string folder() const;
};

// A class of trackers that log_with selects by name. `create` reads the options and may throw;
// Tracker::start() opens the files.
struct TrackerClass {
    std::string name;
    bool requires_logging_directory = false;
    std::function<std::shared_ptr<Tracker>(const TrackerRun&)> create;
};

// Registers a tracker for log_with. Logs a warning if it replaces a tracker of the same name.
// Throws UsageError if the name or the create function is empty, and for the name "all".
// Thread-safe.
void register_tracker_class(TrackerClass tracker_class);

// The trackers of Accelerate's LoggerType, in the same order. Except `all`, `tensorboard` and
// `mlflow`, they need Python: the Accelerator leaves them out and reports an error
// (core/system/log.h), unless the program has registered a tracker with this name.
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

// Returns the leaves of a map with their tags. Leaves of nested maps have tags such as
// "outer/inner"; tensors of one element are replaced by their value. Throws ValueError for maps
// that are nested too deeply (kMaxTreeDepth).
std::vector<Tree::Entry> flattened(const Tree& values);
// Returns the map without tensors. A tensor of one element is replaced by its value, and another
// tensor by the map {"min", "max", "mean", "std"} of its elements, where std divides by n - 1. The
// values of an empty tensor are NaN.
Tree summarised(const Tree& values);
// Throws ValueError for an option that is not in `known`; the message lists all names and suggests
// a similar name, if there is one.
void check_options(const std::string& tracker, const Tree& options,
                   const std::vector<std::string>& known);
// Returns options["purge_step"], or nullopt if it is not set. The option is the first step that a
// resumed run logs again; the tracker removes data with this step or a later one. It takes
// precedence over Tracker::resume(). Throws ValueError if the option is not an integer >= 0.
std::optional<std::int64_t> purge_step(const std::string& tracker, const Tree& options);

}  // namespace axle::accel
