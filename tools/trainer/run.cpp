#include "tools/trainer/run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>

#include "accel/state/checkpoint_folder.h"
#include "accel/utils/text.h"
#include "core/autograd/autograd.h"
#include "core/cuda.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/system/log.h"
#include "kernels/thread_pool.h"

namespace axle::trainer {

namespace fs = std::filesystem;

namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
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

Run::Run(const Options& options, Accelerator& accelerator, Plan plan)
    : options_(options), accelerator_(accelerator), plan_(std::move(plan)) {
    handle_signals();
    accelerator_.register_for_checkpointing(progress_);
    const std::string checkpoints = options_.path_of("checkpoints");
    if (!done() && accelerator_.is_main_process()) owner_ = accel::FolderOwner::claim(checkpoints);
    checkpoint_ = resume(options_, accelerator_);
    // If the folder has checkpoints of an earlier run, the numbers of new checkpoints continue
    // after them.
    const std::int64_t next = accel::next_iteration(accel::list_checkpoints(checkpoints));
    accelerator_.set_save_iteration(std::max(next, accelerator_.save_iteration()));
    start_ = update_start_ = Clock::now();
    if (done()) return;
    if (accelerator_.is_main_process()) {
        metrics_.emplace(options_.path_of("metrics.jsonl"), progress_.step);
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
                    [&] { session.export_chrome_trace(options_.path_of("trace.json")); });
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

void Run::throw_numerics(const std::string& what, double loss) {
    if (bar_) bar_->close();
    throw NumericsError(
        str(what, " is ", std::isnan(loss) ? "NaN" : str(loss), ": use a lower --lr",
            options_.mixed_precision == "no" ? "" : " or --mixed-precision no",
            checkpoint_.empty() ? "" : "; the last checkpoint is ", printable(checkpoint_)));
}

// Throws NumericsError if the loss is not finite, unless the gradient scaler skipped the update.
void Run::check_loss(double mean) {
    // A loss scale of 2^16, the first one, is 1 after this number of skipped updates.
    constexpr int kMaxSkipped = 16;
    if (std::isfinite(mean)) {
        skipped_ = 0;
        return;
    }
    if (accelerator_.mixed_precision() != "fp16" || !accelerator_.optimizer_step_was_skipped() ||
        ++skipped_ >= kMaxSkipped)
        throw_numerics(str("the loss of step ", progress_.step), mean);
}

void Run::evaluate() {
    evaluation_ = plan_.evaluate();
    const Tree* const loss = evaluation_.find("val_loss");
    if (loss != nullptr && !std::isfinite(loss->number()))
        throw_numerics(str("val_loss after step ", progress_.step), loss->number());
}

void Run::end_update() {
    if (!bar_)
        throw UsageError(
            str("Run: end_update: all updates of the run are already done: the last is update ",
                progress_.step));
    ++progress_.step, ++updates_;
    const double mean = mean_loss();
    check_loss(mean);
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
        evaluate();
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
    // While losses are not finite, the parameters may be NaN. The last update was evaluated.
    if (due(options_.save_every) && (skipped_ == 0 || done())) save();
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
        evaluate();
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
    const std::string path = options.path_of("report.html");
    if (options.processes && !options.processes->is_main_process()) return path;
    for (const auto& [key, value] : outcome.summary.entries())
        if (value.is_number() && key != "threads" && key != "processes")
            report.results.set(key, value);
    report.results.set("peak_bytes", memory_of(Device::parse(options.device)).peak);
    // The file may not exist, because a resumed run without remaining updates writes no metrics.
    const std::string metrics = options.path_of("metrics.jsonl");
    if (fs::exists(metrics)) report.metrics = read_metrics(metrics);
    report.configuration = options.values;
    report.environment = environment();
    report.operations = outcome.operations;
    optional_output([&] { write_file_atomically(path, to_html(report)); });
    return path;
}

}  // namespace axle::trainer
