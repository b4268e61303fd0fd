// The common parts of the training programs: options, and Run, which writes metrics and checkpoints
// and shows progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/state/folder_owner.h"
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
    std::string allow_changed;  // comma-separated fields of the identity that may change
    std::int64_t steps = 0;     // number of updates
    double epochs = 0;       // number of passes over the training data; if not 0, replaces `steps`
    bool has_steps = false;  // whether the command line or the file of --config has --steps
    std::int64_t batch_size = 1, accumulation = 1;
    double lr = 1e-3, weight_decay = 0, clip = 1;
    // The numbers of updates between two evaluations, and between two checkpoints. 0 means only at
    // the end; eval_every = -1 means after every epoch.
    std::int64_t eval_every = 0, save_every = 0;
    std::uint64_t seed = 1;
    // The seed of the split into training and validation data, set by apply(): `seed`, or the seed
    // of the evaluated run if eval_only is true.
    std::uint64_t split_seed = 1;
    // Whether the rows of `data` are divided at random into training and validation data. More rows
    // would have another division, so a run can't be resumed with data that have grown.
    bool divides_rows = false;
    std::int64_t threads = 0;  // number of threads; 0: the default of Axle
    bool eval_only = false;
    std::string init_from;  // initial weights; only an option of programs that can load them
    std::string mixed_precision = "no", device = "cpu";
    std::string log_with;       // comma-separated names of trackers
    Tree values = Tree::map();  // all options of the command line, for the report
    // Values that the program adds to the identity of the run, such as the size of the model. If
    // the option `data` is a file, the field "data" of the identity is the fingerprint of this
    // file.
    std::vector<std::pair<std::string, std::string>> identity;
    // The processes of the job, set by apply().
    std::shared_ptr<const PartialState> processes = nullptr;

    // Declares the options, except `data`, `preset`, `clip` and `init_from`, with their current
    // values as defaults. If --steps is given, the default of `epochs` is 0.
    void add_to(CommandLine& line);
    // Sets up processes, threads, seed, device and the folder `out`. After this, only one process
    // of each machine writes to std::cout. With eval_only, `resume` becomes "latest" if neither
    // `resume` nor `init_from` is set. Throws DeviceError, FileError or CommError if a step fails.
    // Throws UsageError if --steps and --epochs are given, and FileError if eval_only is true and
    // the checkpoint of `resume` does not exist.
    //
    // Sets `accumulation` to ACCELERATE_GRADIENT_ACCUMULATION_STEPS if this variable is set. If
    // axle launch has restarted the job on fewer machines, increases it, so that an update has the
    // same number of samples as on all machines. Throws ValueError if that is not possible.
    void apply();
    // Returns the path of a file in `out`.
    std::string path_of(const char* name) const;
    // Returns the number of samples in an update of all processes.
    std::int64_t samples_per_update() const;
    // Returns the number of updates of a run: `steps`, or the updates of `epochs`, rounded, but at
    // least 1. `samples_per_pass` is the number of samples in a pass over the training data.
    std::int64_t updates(double samples_per_pass) const;
    // Returns the options of the Accelerator, including the identity of the run: seed, samples per
    // update, learning rate, weight decay and `identity`. Called after apply().
    accel::AcceleratorOptions accelerator() const;
};

// Returns an AdamW optimizer of the parameters that require a gradient. It applies weight decay to
// parameters with at least two dimensions, such as matrices, embeddings and convolution kernels,
// but not to biases and weights of norms.
optim::AdamW adamw(std::span<const Tensor> parameters, optim::AdamWOptions options);
optim::AdamW adamw(const nn::Module& model, optim::AdamWOptions options);

// Returns the weights of the Linear layers that require a gradient, for Muon, except the weight of
// the output layer "lm_head". Throws UsageError if there are none.
std::vector<Tensor> layer_weights(nn::Module& model);

// Returns the parameters that are not in `removed`.
std::vector<Tensor> without(std::vector<Tensor> parameters, std::span<const Tensor> removed);

// The number of completed updates, which checkpoints save.
struct Progress : accel::Checkpointable {
    std::int64_t step = 0;
    Tree state_dict() const override { return Tree{{"step", step}}; }
    void load_state_dict(const Tree& state) override { step = state["step"].integer(); }
};

// Returns the path of the checkpoint that the option --resume selects, or "" without this option or
// if "auto" finds no checkpoint. Throws FileError if "latest" or "latest-good" finds no checkpoint,
// or if the newest checkpoint is damaged and --resume is "auto" or "latest".
std::string checkpoint_to_resume(const Options& options);

// Loads the checkpoint of the option --resume into the prepared objects. Returns its path, or ""
// without this option or if "auto" finds no checkpoint. Unless eval_only is true, compares the
// checkpoint's run with this run. Throws ValueError if the seed, batch size, learning rate, weight
// decay, or a value of Options::identity differs, unless --allow-changed names the field. Data that
// have grown are accepted. The number of steps may change. Throws the errors of
// checkpoint_to_resume(), and FileError if the checkpoint cannot be read.
std::string resume(const Options& options, Accelerator& accelerator);

// The exit code of a program that has saved a checkpoint because of SIGTERM or SIGINT. The run can
// be resumed.
inline constexpr int kStopped = 143;

// Thrown by Run::end_update() after it has saved a checkpoint because of SIGTERM or SIGINT. This is
// not an exception of the library: main() catches it and returns kStopped.
struct Stopped {
    std::string checkpoint;  // the path of the checkpoint
};

// The result of a run.
struct Outcome {
    // The map that the program prints at its end: the results of the latest evaluation, steps,
    // seconds, UNIT_per_s, processes, threads, device and checkpoint.
    Tree summary = Tree::map();
    std::vector<profiler::Row> operations;  // time of each operation in the profiled updates
};

// A run of a trainer, from its first update (or the resumed checkpoint) to its last update. After
// each update, writes a line to metrics.jsonl and the trackers, and evaluates and saves a
// checkpoint if this is due. Shows a progress bar, and writes a profile of a few updates to
// trace.json.
//
// All processes must call the methods; the main process writes the files.
class Run {
  public:
    struct Plan {
        std::int64_t steps = 0;
        // The unit of the speed, such as "tokens". `per_update` is the number of units in an update
        // of all processes, and `per_epoch` the number of units in an epoch.
        std::string unit = "samples";
        double per_update = 1, per_epoch = 1;
        // A function that evaluates and returns a map of results such as {"val_loss": 1.9}.
        std::function<Tree()> evaluate = {};
    };

    // Starts a run and loads the checkpoint of the option --resume. Must be called after prepare().
    // Installs signal handlers: after SIGUSR1, the next end_update() of all processes saves a
    // checkpoint; after SIGTERM or SIGINT, it saves a checkpoint and throws Stopped. A second
    // SIGINT ends the process immediately. Throws the errors of resume(), and FileError if another
    // process trains in the same folder.
    Run(const Options& options, Accelerator& accelerator, Plan plan);
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    bool done() const { return progress_.step >= plan_.steps; }
    // Adds the loss of a micro-batch. Must be called for every micro-batch.
    void add_loss(const Tensor& loss);
    // Sets a value in the metrics of the current update and of later ones, for example note("lr",
    // 1e-3).
    void note(const std::string& name, double value) { notes_.set(name, value); }
    void note(const std::string& name, const Tensor& value) { note(name, value.item()); }
    // Writes the metrics of an update, and evaluates and saves a checkpoint if this is due. Must be
    // called after every update. If a checkpoint cannot be written, logs a warning and tries again
    // at the next interval; throws FileError if it is the run's last checkpoint, or if a signal
    // ends the run. Throws UsageError if the run had no updates left when it started. Throws
    // NumericsError if the mean loss of the update or a loss of the evaluation ("val_loss") is NaN
    // or infinite; then nothing is saved. In fp16, updates that the gradient scaler skips may have
    // such a loss, but not 16 in sequence. Then only a signal or the end of the run saves a
    // checkpoint.
    void end_update();
    // Closes the progress bar and the trackers and returns the results. If no updates were left at
    // the start of the run, evaluates first, and throws the NumericsError of end_update().
    Outcome finish();

  private:
    using Clock = std::chrono::steady_clock;

    void start_profile();
    void start_trackers();
    void save();
    void obey_signals();
    double mean_loss();
    void check_loss(double mean);
    void evaluate();
    [[noreturn]] void throw_numerics(const std::string& what, double loss);
    bool due(std::int64_t every) const;
    MemoryStats memory() const;  // memory of the training device

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
    Tensor loss_sum_;              // sum over the micro-batches of an update
    std::int64_t loss_count_ = 0;  // number of losses in loss_sum_
    int skipped_ = 0;  // the number of updates in sequence that were skipped with an invalid loss
    double training_seconds_ = 0;
    std::int64_t updates_ = 0;  // number of updates since the program started
    std::int64_t saved_ = -1;   // the step of the last checkpoint that was saved
    std::shared_ptr<const accel::FolderOwner> owner_;  // keeps other runs out of the folder
};

// Writes report.html to the run's folder on the main process and returns its path. Sets the
// metrics, configuration, environment, results and operations of `report` from the run. If the file
// cannot be written, logs a warning. Throws FileError if metrics.jsonl is invalid.
std::string write_report(const Options& options, const Outcome& outcome, Report report);

}  // namespace axle::trainer
