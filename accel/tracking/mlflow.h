// MlflowTracker: a tracker that writes runs in MLflow's file store, which `mlflow ui` shows.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "accel/tracking/tracker.h"

namespace axle::accel {

// The tracker "mlflow". It writes the folder <store>/<experiment id>/<run id> with the files that
// MLflow's client writes: meta.yaml, params/, tags/ and metrics/<tag>, which has a line "<time in
// ms> <value> <step>" for each log(). No MLflow is needed. The store is the option logging_dir, or
// else the path in MLFLOW_TRACKING_URI (a path or a file: URI), or else <logging_dir of the
// Accelerator>/mlruns, or mlruns if there is none.
//
// The experiment is the option experiment_name, or else MLFLOW_EXPERIMENT_NAME, or else the project
// name; it is created if the store has none of this name. Numbers and booleans are logged, and
// tensors are summarized; other values are ignored. A tag of nested values, such as "eval/loss",
// becomes a file in a folder. A value without a step gets the step of the previous call plus 1.
// The configuration becomes params; values of more than 500 bytes are left out with a warning, as
// in Accelerate.
//
// The first log() creates the run, or finish() if there was no log(). After load_state(), the first
// log() continues the newest run of the experiment, without the values that the run logs again. The
// option run_id, or else MLFLOW_RUN_ID, names an existing run to continue. log() throws UsageError
// before start() and after finish(), and ValueError for a tag that MLflow does not accept: tags
// have letters, digits, "_", "-", ".", " ", ":" and "/", and no part between two "/" is empty, "."
// or
// "..".
class MlflowTracker : public Tracker {
  public:
    // Options: experiment_name, run_name, run_id, logging_dir and purge_step. Throws ValueError for
    // an unknown option, an invalid purge_step or run_id, or a MLFLOW_TRACKING_URI of a server.
    explicit MlflowTracker(const TrackerRun& run);
    std::string name() const override { return "mlflow"; }
    void start() override;
    void resume(std::optional<std::int64_t> purge_step) override;
    void store_init_configuration(const Tree& config) override;
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree& options) override;
    void finish() override;

  private:
    std::string find_experiment() const;
    std::string newest_run() const;
    void open(std::string run_id, std::optional<std::int64_t> purge_step);
    void open_if_needed();
    void remove_from(std::int64_t purge_step);
    void write_meta(std::int64_t status, std::optional<std::int64_t> end) const;
    void write_params();

    std::string store_, experiment_name_, run_name_, run_id_option_;
    std::optional<std::int64_t> purge_step_;  // the option purge_step
    std::string experiment_id_;               // set by start()
    std::string run_id_, folder_;             // empty before the run is open
    std::int64_t start_time_ = 0, last_step_ = 0;
    Tree config_;  // stored, but not yet written
    bool started_ = false;
    std::set<std::string> tags_;  // tags that this run has logged
};

}  // namespace axle::accel
