// What surrounds a training loop in the programs of this folder: the options that they share, and a
// run's folder with its metrics, checkpoints and progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/report/report.h"
#include "accel/tracking/jsonl.h"
#include "accel/utils/progress.h"
#include "core/memory/memory.h"
#include "core/tree/tree.h"
#include "nn/module.h"
#include "optim/adam.h"
#include "tools/trainer/command_line.h"

namespace axle::trainer {

// What every trainer can be told.
struct Options {
    std::string data, out, preset, resume;
    std::int64_t steps = 0;  // optimizer updates
    double epochs = 0;       // passes over the training data; if given, decides the steps
    std::int64_t batch_size = 1, accumulation = 1;
    double lr = 1e-3, weight_decay = 0, clip = 1;
    // Updates; 0 only at the end, -1 (of eval_every) after every epoch.
    std::int64_t eval_every = 0, save_every = 0;
    std::uint64_t seed = 1;
    std::int64_t threads = 0;  // 0: what the library chooses
    bool eval_only = false;
    std::string mixed_precision = "no", device = "cpu";
    std::string log_with;       // names of trackers, with commas between them
    Tree values = Tree::map();  // of the whole command line, for the report
    // Of this process, from apply() on.
    std::shared_ptr<const PartialState> processes = nullptr;

    // Declares them, with the values that they have now as defaults.
    void add_to(CommandLine& line);
    // Processes, threads, seed, device and the folder `out`; DeviceError, FileError, CommError.
    // From here on std::cout is heard from one process of each machine alone.
    void apply();
    // Samples that all processes together train on with each update.
    std::int64_t samples_per_update() const;
    // Updates of a run over `samples` of training data.
    std::int64_t updates(double samples_per_pass) const;
    accel::AcceleratorOptions accelerator() const;
};

// AdamW that decays matrices and kernels, and leaves biases and norms alone.
optim::AdamW adamw(const nn::Module& model, optim::AdamWOptions options);

// The updates done, saved with the rest.
struct Progress : accel::Checkpointable {
    std::int64_t step = 0;
    Tree state_dict() const override { return Tree{{"step", step}}; }
    void load_state_dict(const Tree& state) override { step = state["step"].integer(); }
};

// Loads what --resume names into what is prepared, and returns its path: "" without --resume.
std::string resume(const Options& options, Accelerator& accelerator);

// What a run ends with.
struct Outcome {
    // What a program's last line says: the latest evaluation, steps, seconds, UNIT_per_s, threads,
    // device and checkpoint.
    Tree summary = Tree::map();
    std::vector<profiler::Row> operations;  // of the updates that were profiled
};

// On several processes all of them call this, and the main one writes.
//
// One run, from its first update (or the checkpoint it goes on from) to the last: a line in
// metrics.jsonl and in the trackers for each update, evaluations and checkpoints when they are due,
// a progress bar, and a profile of a few updates in trace.json.
class Run {
  public:
    struct Plan {
        std::int64_t steps = 0;
        // What an update of all processes consumes and what of it makes an epoch, as in 768 tokens
        // of 1000000.
        std::string unit = "samples";
        double per_update = 1, per_epoch = 1;
        // What evaluation says, by name: {"val_loss": 1.9}.
        std::function<Tree()> evaluate = {};
    };

    // Everything is prepared: --resume happens here.
    Run(const Options& options, Accelerator& accelerator, Plan plan);
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    bool done() const { return progress_.step >= plan_.steps; }
    // With every micro-batch.
    void add_loss(const Tensor& loss);
    // What else the line of this update says, as in note("lr", 1e-3).
    void note(const std::string& name, double value) { notes_.set(name, value); }
    void note(const std::string& name, const Tensor& value) { note(name, value.item()); }
    // After every update: the line, and what is due.
    void end_update();
    // Ends bar and trackers; a run that had nothing left to do evaluates now.
    Outcome finish();

  private:
    using Clock = std::chrono::steady_clock;

    void start_profile();
    void start_trackers();
    double mean_loss();
    bool due(std::int64_t every) const;
    MemoryStats memory() const;  // of the device that trains

    const Options& options_;
    Accelerator& accelerator_;
    Plan plan_;
    Progress progress_;
    Tree evaluation_ = Tree::map(), notes_ = Tree::map();
    std::string checkpoint_;
    std::optional<accel::JsonLines> metrics_;
    std::optional<accel::ProgressBar> bar_;
    std::optional<accel::ProfileSession> profile_;
    std::vector<profiler::Row> operations_;
    Clock::time_point start_, update_start_;
    Tensor loss_sum_;
    double training_seconds_ = 0;
    std::int64_t updates_ = 0;  // of this process
};

// report.html in the run's folder; what is not filled in (metrics, configuration, environment,
// results, operations) is taken from the run. The main process writes it. Returns the path.
std::string write_report(const Options& options, const Outcome& outcome, accel::Report report);

}  // namespace axle::trainer
