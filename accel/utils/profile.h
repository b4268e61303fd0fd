// Profiling of a training loop.
//
//     auto profile = accelerator.profile({
//         .schedule_option = accel::ProfileSchedule{.wait = 5, .warmup = 1, .active = 3},
//         .on_trace_ready =
//             [](accel::ProfileSession& p) { std::cout << profiler::table(p.key_averages()); },
//         .output_trace_dir = "profile",
//     });
//     for (auto& batch : loader) {
//         ...
//         profile.step();
//     }
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/owning_ptr.h"

namespace axle::profiler {
struct Row;
struct Trace;
}  // namespace axle::profiler

namespace axle::accel {

class ProfileSession;

// A schedule as in torch.profiler.schedule: after skip_first steps, cycles of wait, warmup and
// active steps. `repeat` is the number of cycles; 0 means that cycles repeat until the session
// stops.
struct ProfileSchedule {
    std::int64_t wait = 0;
    std::int64_t warmup = 0;  // steps that are recorded and discarded
    std::int64_t active = 1;
    std::int64_t repeat = 0;
    std::int64_t skip_first = 0;
};

// Throws ValueError if a count is negative, or if there is no active step.
void check_schedule(const ProfileSchedule& schedule);

enum class ProfilerAction : std::uint8_t { none, warmup, record, record_and_save };
// Returns the action of a step, counted from 0.
ProfilerAction action_at(const ProfileSchedule& schedule, std::int64_t step);

// The options of a profiler session, in the order of Accelerate's ProfileKwargs.
struct ProfileKwargs {
    // The recorded activities. "cpu" means scopes and memory of the host. "cuda" has no effect,
    // because GPU kernels are not recorded. If empty, all activities are recorded.
    std::vector<std::string> activities = {};
    // The schedule. Without a schedule, all steps until stop() are recorded.
    std::optional<ProfileSchedule> schedule_option = {};
    // Called after the last active step of a cycle, and when the session stops while it records.
    std::function<void(ProfileSession&)> on_trace_ready = {};
    bool record_shapes = false;   // records the shapes of operands
    bool profile_memory = false;  // records the allocated memory over time; needs the activity cpu
    // Options of PyTorch that have no effect. If one is set, the program logs a warning once.
    bool with_stack = false, with_flops = false, with_modules = false;
    // The folder in which stop() writes the latest trace, profile_<process index>.json. It is
    // created if it does not exist. If empty, no file is written.
    std::string output_trace_dir = {};
};

// A profiler session. Records from construction to stop() according to the schedule. A process may
// have one session at a time, used by one thread.
class ProfileSession {
  public:
    // Starts the session. Throws ValueError for an unknown activity or an invalid schedule,
    // UsageError if the profiler is already running, and FileError if the folder can't be created.
    // `finished` is called after the file was written.
    explicit ProfileSession(ProfileKwargs options = {}, int process_index = 0,
                            std::function<void()> finished = {});
    // Calls stop(), and throws its exceptions unless another exception is unwinding the stack. Call
    // stop() before a std::optional or std::unique_ptr destroys the session, because an exception
    // would then end the program.
    ~ProfileSession() noexcept(false);
    ProfileSession(const ProfileSession&) = delete;
    ProfileSession& operator=(const ProfileSession&) = delete;

    // Ends a step of the schedule. Call it at the end of each iteration of the loop. Throws
    // UsageError after stop(), and the exceptions of on_trace_ready.
    void step();
    // Ends the session, and writes the trace to output_trace_dir if that is set. The trace can
    // still be read. Further calls do nothing. Throws FileError if the file can't be written, and
    // the exceptions of on_trace_ready.
    void stop();

    std::int64_t step_num() const { return step_; }
    ProfilerAction current_action() const { return action_; }

    // Returns the trace of the latest cycle, or of the running recording. core/profiler/trace.h
    // defines Trace and Row.
    const profiler::Trace& trace();
    // Returns statistics of the trace by operation or, if group_by_input_shape is true, by
    // operation and shapes of operands.
    std::vector<profiler::Row> key_averages(bool group_by_input_shape = false);
    // Writes the trace in Chrome's format. Throws FileError if the file can't be written.
    void export_chrome_trace(const std::string& path);

  private:
    ProfilerAction action_of(std::int64_t step) const;
    void move_to(ProfilerAction next);
    void begin_step();
    void finish_trace();
    void drop_recording();

    ProfileKwargs options_;
    int process_index_;
    std::function<void()> finished_;
    int unwinding_;  // std::uncaught_exceptions() at construction

    std::int64_t step_ = 0;
    ProfilerAction action_ = ProfilerAction::none;
    bool recording_ = false;  // whether the profiler runs for this session
    bool stopped_ = false;
    struct Recording;
    OwningPtr<Recording> recorded_;
};

}  // namespace axle::accel
