#include "accel/utils/profile.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "core/files/file.h"
#include "core/profiler/profiler.h"
#include "core/system/log.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr bool records(ProfilerAction action) {
    return action == ProfilerAction::record || action == ProfilerAction::record_and_save;
}

void check_activities(const std::vector<std::string>& activities) {
    for (const std::string& name : activities)
        if (name != "cpu" && name != "cuda")
            throw ValueError(
                str("profile: unknown activity ", in_quotes(name), "; expected cpu or cuda"));
}

bool records_host(const ProfileKwargs& options) {
    return options.activities.empty() ||
           std::count(options.activities.begin(), options.activities.end(), "cpu") > 0;
}

void warn_of_options_without_effect(const ProfileKwargs& options) {
    static std::atomic<bool> logged = false;
    if (!options.with_stack && !options.with_flops && !options.with_modules) return;
    if (logged.exchange(true)) return;
    log(LogLevel::warning,
        "profile: with_stack, with_flops and with_modules have no effect; use "
        "profiler::RecordFunction to record parts of a program");
}

}  // namespace

void check_schedule(const ProfileSchedule& s) {
    const std::pair<const char*, std::int64_t> counts[] = {
        {"wait", s.wait}, {"warmup", s.warmup}, {"repeat", s.repeat}, {"skip_first", s.skip_first}};
    for (const auto& [name, count] : counts)
        if (count < 0) throw ValueError(str("profile: ", name, " can't be negative: ", count));
    if (s.active < 1)
        throw ValueError(
            str("profile: active (the number of recorded steps) must be positive: ", s.active));
}

ProfilerAction action_at(const ProfileSchedule& s, std::int64_t step) {
    if (step < s.skip_first) return ProfilerAction::none;
    step -= s.skip_first;
    const std::int64_t cycle = s.wait + s.warmup + s.active;
    if (s.repeat > 0 && step / cycle >= s.repeat) return ProfilerAction::none;
    const std::int64_t at = step % cycle;
    if (at < s.wait) return ProfilerAction::none;
    if (at < s.wait + s.warmup) return ProfilerAction::warmup;
    return at + 1 < cycle ? ProfilerAction::record : ProfilerAction::record_and_save;
}

// The scope of the current step, and the trace of the latest cycle.
struct ProfileSession::Recording {
    std::optional<profiler::RecordFunction> step;
    profiler::Trace trace;
};

ProfileSession::ProfileSession(ProfileKwargs options, int process_index,
                               std::function<void()> finished)
    : options_(std::move(options)),
      process_index_(process_index),
      finished_(std::move(finished)),
      unwinding_(std::uncaught_exceptions()),
      recorded_(make_owning<Recording>()) {
    check_activities(options_.activities);
    warn_of_options_without_effect(options_);
    if (options_.schedule_option) check_schedule(*options_.schedule_option);
    if (profiler::enabled())
        throw UsageError("profile: another recording is already running; stop it first");
    if (!options_.output_trace_dir.empty()) create_directories(options_.output_trace_dir);
    move_to(action_of(0));
    begin_step();
}

ProfileSession::~ProfileSession() noexcept(false) {
    if (std::uncaught_exceptions() == unwinding_) {
        stop();
        return;
    }
    try {
        stop();
    } catch (...) {  // another exception is unwinding the stack
        report_error_noexcept(std::current_exception());
    }
}

ProfilerAction ProfileSession::action_of(std::int64_t step) const {
    return options_.schedule_option ? action_at(*options_.schedule_option, step)
                                    : ProfilerAction::record;
}

void ProfileSession::step() {
    if (stopped_) throw UsageError("profile: step: the session has been stopped");
    recorded_->step.reset();
    ++step_;
    move_to(action_of(step_));
    begin_step();
}

// Changes the action of the session. Finishes the trace of a cycle that has ended, discards the
// recording of a warm-up, and starts a recording if the next action needs it.
void ProfileSession::move_to(ProfilerAction next) {
    const ProfilerAction before = std::exchange(action_, next);
    if (before == ProfilerAction::record_and_save)
        finish_trace();
    else if (before == ProfilerAction::warmup && records(next))
        drop_recording();
    if (next == ProfilerAction::none || recording_) return;
    const bool host = records_host(options_);
    profiler::start({.record_shapes = options_.record_shapes,
                     .profile_memory = options_.profile_memory && host,
                     .record_scopes = host});
    recording_ = true;
    if (records(next)) recorded_->trace = {};
}

void ProfileSession::begin_step() {
    if (!options_.schedule_option || !recording_) return;
    recorded_->step.emplace(str("ProfilerStep#", step_));
}

void ProfileSession::finish_trace() {
    if (!std::exchange(recording_, false)) return;
    profiler::stop(recorded_->trace);
    if (options_.on_trace_ready) options_.on_trace_ready(*this);
}

void ProfileSession::drop_recording() {
    if (std::exchange(recording_, false)) profiler::stop();
}

void ProfileSession::stop() {
    if (std::exchange(stopped_, true)) return;
    recorded_->step.reset();
    const ProfilerAction last = std::exchange(action_, ProfilerAction::none);
    if (records(last))
        finish_trace();
    else
        drop_recording();
    if (options_.output_trace_dir.empty()) return;
    export_chrome_trace(str(options_.output_trace_dir, "/profile_", process_index_, ".json"));
    if (finished_) finished_();
}

const profiler::Trace& ProfileSession::trace() {
    if (recording_ && records(action_)) profiler::collect(recorded_->trace);
    return recorded_->trace;
}

std::vector<profiler::Row> ProfileSession::key_averages(bool group_by_input_shape) {
    return profiler::key_averages(trace(), group_by_input_shape);
}

void ProfileSession::export_chrome_trace(const std::string& path) {
    profiler::export_chrome_trace(trace(), path, process_index_);
}

}  // namespace axle::accel
