#include "tools/trainer/run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "accel/loop/elastic.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "accel/utils/text.h"
#include "core/autograd/autograd.h"
#include "core/cuda.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/system/log.h"
#include "kernels/thread_pool.h"
#include "tools/trainer/fingerprint.h"

namespace axle::trainer {

namespace fs = std::filesystem;

namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

std::string file_in(const Options& options, const char* name) {
    return (fs::path(options.out) / name).string();
}

// Writes an optional file. If writing fails with FileError, logs a warning and returns false, so
// that training continues.
template <class F>
bool optional_output(F&& write) {
    try {
        write();
        return true;
    } catch (const FileError& error) {
        log(LogLevel::warning, "an optional output file was not written: ", error.what());
        return false;
    }
}

extern "C" void request_save(int) { accel::request_checkpoint(accel::CheckpointRequest::save); }
extern "C" void request_stop(int) {
    accel::request_checkpoint(accel::CheckpointRequest::save_and_stop);
}

// Returns the comma-separated parts of a text.
std::vector<std::string> parts_of(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    return parts;
}

// Returns whether the data of this run are a file that begins with the data of a checkpoint and is
// longer.
bool data_have_grown(const Options& options, const std::string& checkpoint) {
    const Tree identity = accel::checkpoint_label(checkpoint).identity;
    const Tree* const saved = identity.find("data");
    return saved != nullptr && fs::is_regular_file(options.data) &&
           has_grown(options.data, saved->string());
}

void handle_signals() {
    struct sigaction action = {};
    action.sa_flags = SA_RESTART;
    action.sa_handler = request_save;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_handler = request_stop;
    sigaction(SIGTERM, &action, nullptr);
    action.sa_flags |= static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, nullptr);
}

MemoryStats memory_of(Device device) {
    return device.is_cuda() ? cuda::memory_stats(device.index) : host_memory::stats();
}

}  // namespace

void Options::add_to(CommandLine& line) {
    line.add("out", out, "Folder for metrics, checkpoints and the model");
    line.add("resume", resume,
             "Resume from a checkpoint folder, from the newest in --out ('latest'; 'latest-good' "
             "skips damaged ones), or 'auto': from the newest if there is one");
    line.add("allow-changed", allow_changed,
             "Fields that may differ when resuming: seed, batch, lr, weight-decay, model, data");
    line.add("seed", seed, "Random seed of weights, batches, dropout and samples");
    line.add("threads", threads, "CPU threads; 0 uses AXLE_NUM_THREADS or all CPUs", 0, 1024);
    line.add("steps", steps, "Optimizer updates", 1);
    line.add("epochs", epochs, "Passes over the training data, instead of --steps", 0, 1e6);
    line.add("batch-size", batch_size, "Samples in a micro-batch", 1);
    line.add("gradient-accumulation-steps", accumulation, "Micro-batches in an update", 1, 1 << 20);
    line.add("lr", lr, "Highest learning rate");
    line.add("weight-decay", weight_decay, "Weight decay of AdamW, for matrices");
    line.add("eval-every", eval_every,
             "Updates between evaluations; 0 only at the end, -1 after every epoch", -1);
    line.add("save-every", save_every, "Updates between checkpoints; 0 only at the end");
    line.add_flag("eval-only", eval_only, "Evaluate without training");
    line.add("log-with", log_with,
             "Trackers in addition to metrics.jsonl: tensorboard, mlflow, csv, all");
    line.add("mixed-precision", mixed_precision, "no, fp16, bf16 or fp8");
    line.add("device", device, "cpu or cuda");
}

void Options::apply() {
    if (eval_only && resume.empty() && init_from.empty()) resume = "latest";
    const Device chosen = Device::parse(device);
    if (chosen.is_meta() || chosen.index != 0)
        throw DeviceError("--device: must be cpu or cuda, not '" + device +
                          "'; use CUDA_VISIBLE_DEVICES to choose a GPU");
    processes =
        std::make_shared<const PartialState>(accel::PartialStateOptions{.cpu = chosen.is_cpu()});
    accumulation =
        accel::elastic_accumulation_steps(accumulation, batch_size, processes->num_processes());
    if (!processes->is_local_main_process()) std::cout.setstate(std::ios::failbit);
    if (threads > 0) kernels::set_num_threads(static_cast<int>(threads));
    create_directories(out);
    manual_seed(seed);
}

std::int64_t Options::samples_per_update() const {
    const auto config = accel::ParallelismConfig::from_environment();
    const int shared = config ? config->non_data_parallel_size() / config->sp_size : 1;
    return batch_size * accumulation * (processes ? processes->num_processes() / shared : 1);
}

std::int64_t Options::updates(double samples_per_pass) const {
    if (epochs == 0) return steps;
    const double passes = epochs * samples_per_pass / static_cast<double>(samples_per_update());
    return std::max<std::int64_t>(1, std::llround(passes));
}

accel::AcceleratorOptions Options::accelerator() const {
    std::vector<accel::LogWith> trackers;
    for (std::string& name : parts_of(log_with)) trackers.emplace_back(std::move(name));
    std::vector<std::pair<std::string, std::string>> fields = {
        {"seed", std::to_string(seed)},
        {"batch", std::to_string(samples_per_update())},
        {"lr", str(lr)},
        {"weight-decay", str(weight_decay)},
    };
    fields.insert(fields.end(), identity.begin(), identity.end());
    return {.mixed_precision = mixed_precision,
            .cpu = Device::parse(device).is_cpu(),
            .log_with = std::move(trackers),
            .project_config = {.project_dir = out,
                               .automatic_checkpoint_naming = true,
                               .total_limit = 2,
                               .identity = std::move(fields)},
            // The plugin takes precedence over the environment, which apply() has read.
            .gradient_accumulation_plugin =
                accel::GradientAccumulationPlugin{.num_steps = static_cast<int>(accumulation)},
            .scheduler_steps = accel::SchedulerSteps::per_update};
}

optim::AdamW adamw(const nn::Module& model, optim::AdamWOptions options) {
    std::vector<Tensor> matrices, vectors;
    for (const Tensor& p : model.parameters()) (p.dim() >= 2 ? matrices : vectors).push_back(p);
    std::vector<optim::AdamW::Group> groups = {{matrices, options}};
    options.weight_decay = 0;
    optim::AdamW::Group undecayed(vectors, options);
    if (!vectors.empty()) groups.push_back(std::move(undecayed));
    return optim::AdamW(groups);
}

std::string resume(const Options& options, Accelerator& accelerator) {
    const std::string& from = options.resume;
    if (from.empty()) return "";
    const std::string checkpoints = file_in(options, "checkpoints");
    if (from == "auto") {
        const accel::CheckpointList list = accel::list_checkpoints(checkpoints);
        if (list.entries.empty() && list.damaged.empty()) return "";
    }
    const bool is_good = from == "latest-good";
    std::string path = from;
    if (from == "auto" || from == "latest" || is_good) {
        const auto newest = is_good ? accel::latest_good_checkpoint(checkpoints)
                                    : accel::latest_checkpoint(checkpoints);
        if (!newest)
            throw FileError(printable(checkpoints) + (is_good ? ": contains no undamaged checkpoint"
                                                              : ": contains no checkpoint"));
        path = *newest;
    }
    std::vector<std::string> changed = parts_of(options.allow_changed);
    if (accel::is_checkpoint(path) && data_have_grown(options, path)) {
        changed.emplace_back("data");
        accelerator.print("the data have grown since ", path, " was saved");
    }
    return accelerator.load_state(
        path, {.check_identity = !options.eval_only, .changed_identity = std::move(changed)});
}

Run::Run(const Options& options, Accelerator& accelerator, Plan plan)
    : options_(options), accelerator_(accelerator), plan_(std::move(plan)) {
    handle_signals();
    accelerator_.register_for_checkpointing(progress_);
    const std::string checkpoints = file_in(options_, "checkpoints");
    if (!done() && accelerator_.is_main_process()) owner_ = accel::FolderOwner::claim(checkpoints);
    checkpoint_ = resume(options_, accelerator_);
    // If the folder has checkpoints of an earlier run, the numbers of new checkpoints continue
    // after them.
    const std::int64_t next = accel::next_iteration(accel::list_checkpoints(checkpoints));
    accelerator_.set_save_iteration(std::max(next, accelerator_.save_iteration()));
    start_ = update_start_ = Clock::now();
    if (done()) return;
    if (accelerator_.is_main_process()) {
        metrics_.emplace(file_in(options_, "metrics.jsonl"), progress_.step);
        start_profile();
    }
    start_trackers();
    bar_.emplace(plan_.steps, accel::ProgressOptions{.title = "train", .start = progress_.step});
}

// Starts the trackers, which remove entries that a resumed run will log again.
void Run::start_trackers() {
    Tree kwargs = Tree::map();
    for (const char* name : {"tensorboard", "csv", "jsonl"})
        kwargs.set(name, Tree{{"purge_step", progress_.step + 1}});
    accelerator_.init_trackers("logs", options_.values, kwargs);
}

// Starts a profile of a few updates, after the first updates, which are slower.
void Run::start_profile() {
    profile_.emplace(accel::ProfileKwargs{
        .schedule_option =
            accel::ProfileSchedule{.warmup = 1, .active = 5, .repeat = 1, .skip_first = 4},
        .on_trace_ready =
            [this](accel::ProfileSession& session) {
                operations_ = session.key_averages();
                std::erase_if(operations_,
                              [](const profiler::Row& row) { return row.name == "ProfilerStep*"; });
                optional_output(
                    [&] { session.export_chrome_trace(file_in(options_, "trace.json")); });
            },
        .profile_memory = true});
}

// The sum stays on the device until the end of the update, so that micro-batches do not wait for a
// GPU.
void Run::add_loss(const Tensor& loss) {
    const NoGrad no_grad;
    const Tensor value = loss.detach().to(f64);
    loss_sum_ = loss_sum_.defined() ? loss_sum_ + value : value;
    ++loss_count_;
}

MemoryStats Run::memory() const { return memory_of(accelerator_.device()); }

bool Run::due(std::int64_t every) const {
    if (every < 0)
        every = std::max<std::int64_t>(1, std::llround(plan_.per_epoch / plan_.per_update));
    return done() || (every > 0 && progress_.step % every == 0);
}

// Returns the mean loss of the micro-batches of an update, averaged over all processes, or 0 if
// add_loss() was not called. Starts the sum of the next update.
double Run::mean_loss() {
    if (!loss_sum_.defined()) return 0;
    const Tensor mean = loss_sum_ / static_cast<double>(loss_count_);
    loss_sum_ = {};
    loss_count_ = 0;
    accelerator_.state().process_group()->all_reduce(mean, dist::ReduceOp::mean);
    return mean.item();
}

void Run::end_update() {
    if (!bar_)
        throw UsageError(
            str("Run: end_update: all updates of the run are already done: the last is update ",
                progress_.step));
    ++progress_.step, ++updates_;
    const double mean = mean_loss();
    const double seconds = seconds_between(update_start_, Clock::now());
    training_seconds_ += seconds;

    Tree row{
        {"step", progress_.step},
        {"epoch", static_cast<double>(progress_.step) * plan_.per_update / plan_.per_epoch},
        {"loss", mean},
    };
    for (const auto& [key, value] : notes_.entries()) row.set(key, value);
    row.set(plan_.unit + "_per_s", plan_.per_update / seconds);
    row.set("memory_bytes", memory().current);
    if (due(options_.eval_every)) {
        evaluation_ = plan_.evaluate();
        std::string line = str("step ", progress_.step, ":");
        for (const auto& [key, value] : evaluation_.entries()) {
            row.set(key, value);
            line += str(" ", key, " ", value.number());
        }
        bar_->print(line);
    }
    if (metrics_) {
        if (!optional_output([&] { metrics_->write(row); })) metrics_.reset();
    }
    if (profile_) profile_->step();
    accelerator_.log(row, progress_.step);
    if (due(options_.save_every)) save();
    obey_signals();
    bar_->update(progress_.step, str("loss ", mean, "  ", accel::human_bytes(memory().peak)));
    update_start_ = Clock::now();
}

void Run::save() {
    if (saved_ == progress_.step) return;
    accelerator_.set_save_iteration(std::max(progress_.step, accelerator_.save_iteration()));
    try {
        checkpoint_ = accelerator_.save_state();
        saved_ = progress_.step;
    } catch (const FileError& error) {
        if (done()) throw;
        log(LogLevel::warning, "the checkpoint of step ", progress_.step,
            " was not saved, and the earlier checkpoint stays: ", error.what());
    }
}

// Saves a checkpoint if a signal requested it. If the signal also ends the run, throws Stopped, or
// FileError if saving failed.
void Run::obey_signals() {
    const accel::CheckpointRequest request = accelerator_.checkpoint_request();
    if (request == accel::CheckpointRequest::none) return;
    save();
    if (request == accel::CheckpointRequest::save) return;
    if (saved_ != progress_.step)
        throw FileError(str("Run: end_update: a signal requested a checkpoint, but step ",
                            progress_.step, " was not saved"));
    bar_->close();
    throw Stopped{checkpoint_};
}

Outcome Run::finish() {
    if (bar_) {
        bar_->close();
        if (profile_) profile_->stop();
        accelerator_.end_training();
    } else {
        evaluation_ = plan_.evaluate();
    }
    const bool trained = updates_ > 0;
    Tree summary = evaluation_;
    summary.set("steps", progress_.step);
    summary.set("seconds", trained ? seconds_between(start_, Clock::now()) : 0.0);
    summary.set(plan_.unit + "_per_s",
                trained ? static_cast<double>(updates_) * plan_.per_update / training_seconds_ : 0);
    summary.set("processes", accelerator_.num_processes());
    summary.set("threads", kernels::num_threads());
    summary.set("device", options_.device);
    summary.set("checkpoint", checkpoint_);
    return {std::move(summary), operations_};
}

std::string write_report(const Options& options, const Outcome& outcome, Report report) {
    const std::string path = file_in(options, "report.html");
    if (options.processes && !options.processes->is_main_process()) return path;
    for (const auto& [key, value] : outcome.summary.entries())
        if (value.is_number() && key != "threads" && key != "processes")
            report.results.set(key, value);
    report.results.set("peak_bytes", memory_of(Device::parse(options.device)).peak);
    // The file may not exist, because a resumed run without remaining updates writes no metrics.
    const std::string metrics = file_in(options, "metrics.jsonl");
    if (fs::exists(metrics)) report.metrics = read_metrics(metrics);
    report.configuration = options.values;
    report.environment = environment();
    report.operations = outcome.operations;
    optional_output([&] { write_file_atomically(path, to_html(report)); });
    return path;
}

}  // namespace axle::trainer
