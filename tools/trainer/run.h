// The common parts of the training programs in this folder: shared options, and a run's folder with
// metrics, checkpoints and progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/tracking/jsonl.h"
#include "accel/utils/progress.h"
#include "core/memory/memory.h"
#include "core/tree/tree.h"
#include "nn/module.h"
#include "optim/adam.h"
#include "tools/trainer/command_line.h"
#include "tools/trainer/report.h"

namespace axle::trainer {

// The options of every trainer.
struct Options {
    std::string data, out, preset, resume;
    std::int64_t steps = 0;  // optimizer updates
    double epochs = 0;       // passes over the training data; if not 0, determines `steps`
    std::int64_t batch_size = 1, accumulation = 1;
    double lr = 1e-3, weight_decay = 0, clip = 1;
    // Intervals in updates. 0: only at the end; -1 (eval_every): after every epoch.
    std::int64_t eval_every = 0, save_every = 0;
    std::uint64_t seed = 1;
    std::int64_t threads = 0;  // 0: the library's default
    bool eval_only = false;
    std::string init_from;  // the weights to start from; declared by programs that can read them
    std::string mixed_precision = "no", device = "cpu";
    std::string log_with;       // comma-separated names of trackers
    Tree values = Tree::map();  // all options of the command line, for the report
    // Set by apply().
    std::shared_ptr<const PartialState> processes = nullptr;

    // Declares the options with their current values as defaults.
    void add_to(CommandLine& line);
    // Sets up processes, threads, seed, device and the folder `out`. Throws DeviceError, FileError
    // or CommError. From then on only one process of each machine writes to std::cout. eval_only
    // without weights resumes the latest checkpoint.
    void apply();
    // Returns the number of samples in an update of all processes.
    std::int64_t samples_per_update() const;
    // Returns the number of updates of a run.
    std::int64_t updates(double samples_per_pass) const;
    accel::AcceleratorOptions accelerator() const;
};

// Returns an AdamW that applies weight decay to matrices and kernels, but not to biases and norms.
optim::AdamW adamw(const nn::Module& model, optim::AdamWOptions options);

// The number of completed updates, saved in checkpoints.
struct Progress : accel::Checkpointable {
    std::int64_t step = 0;
    Tree state_dict() const override { return Tree{{"step", step}}; }
    void load_state_dict(const Tree& state) override { step = state["step"].integer(); }
};

// Loads the checkpoint named by --resume into the prepared objects. Returns its path, or "" without
// --resume.
std::string resume(const Options& options, Accelerator& accelerator);

// The result of a run.
struct Outcome {
    // Contents of the program's last output line: the latest evaluation, steps, seconds,
    // UNIT_per_s, threads, device and checkpoint.
    Tree summary = Tree::map();
    std::vector<profiler::Row> operations;  // recorded in the profiled updates
};

// One run, from its first update (or the resumed checkpoint) to the last. Writes a line to
// metrics.jsonl and the trackers after each update, runs evaluations and checkpoints when they are
// due, shows a progress bar, and writes a profile of a few updates to trace.json.
//
// All processes call its methods; the main process writes the files.
class Run {
  public:
    struct Plan {
        std::int64_t steps = 0;
        // Units per update of all processes and per epoch, such as 768 tokens of 1000000.
        std::string unit = "samples";
        double per_update = 1, per_epoch = 1;
        // Returns the results of an evaluation by name, such as {"val_loss": 1.9}.
        std::function<Tree()> evaluate = {};
    };

    // Must be called after prepare(). Loads the checkpoint named by --resume.
    Run(const Options& options, Accelerator& accelerator, Plan plan);
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    bool done() const { return progress_.step >= plan_.steps; }
    // Must be called with the loss of every micro-batch.
    void add_loss(const Tensor& loss);
    // Adds a value to the current update's line, such as note("lr", 1e-3).
    void note(const std::string& name, double value) { notes_.set(name, value); }
    void note(const std::string& name, const Tensor& value) { note(name, value.item()); }
    // Must be called after every update. Writes the line, evaluates and saves if due.
    void end_update();
    // Closes the progress bar and the trackers. If there were no updates to do, evaluates now.
    Outcome finish();

  private:
    using Clock = std::chrono::steady_clock;

    void start_profile();
    void start_trackers();
    double mean_loss();
    bool due(std::int64_t every) const;
    MemoryStats memory() const;  // on the training device

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
    std::int64_t updates_ = 0;  // done by this process
};

// Writes report.html to the run's folder, in the main process. Fills in metrics, configuration,
// environment, results and operations from the run. Returns the path.
std::string write_report(const Options& options, const Outcome& outcome, Report report);

}  // namespace axle::trainer
