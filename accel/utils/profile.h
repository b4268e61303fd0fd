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
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/profiler/profiler.h"

namespace axle::accel {

class ProfileSession;

// A schedule as in torch.profiler.schedule: cycles of wait, warmup and active steps after
// skip_first steps. There are `repeat` cycles, or cycles until the end if it is 0.
struct ProfileSchedule {
    std::int64_t wait = 0;
    std::int64_t warmup = 0;  // recorded and discarded
    std::int64_t active = 1;
    std::int64_t repeat = 0;
    std::int64_t skip_first = 0;
};

// Throws ValueError for a negative count, or without an active step.
void check_schedule(const ProfileSchedule& schedule);

enum class ProfilerAction : std::uint8_t { none, warmup, record, record_and_save };
ProfilerAction action_at(const ProfileSchedule& schedule, std::int64_t step);

// Fields are in the order of Accelerate's ProfileKwargs.
struct ProfileKwargs {
    // "cpu" and "cuda" (which has no effect without a GPU); empty: both.
    std::vector<std::string> activities = {};
    // Without a schedule, everything is recorded until stop().
    std::optional<ProfileSchedule> schedule_option = {};
    // Called after the last active step of a cycle, and when the session stops while it records.
    std::function<void(ProfileSession&)> on_trace_ready = {};
    bool record_shapes = false;   // shapes of operands
    bool profile_memory = false;  // allocated memory over time
    // Options of PyTorch that have no effect: a session logs that once.
    bool with_stack = false, with_flops = false, with_modules = false;
    // The folder in which stop() writes the latest trace, profile_<process index>.json. It is
    // created if it does not exist. If empty, no file is written.
    std::string output_trace_dir = {};
};

// Records from construction to stop(), following the schedule. A process can have one session at a
// time, and uses it on one thread.
class ProfileSession {
  public:
    // Throws ValueError for an unknown activity or an invalid schedule, UsageError if something is
    // being recorded already, FileError if the folder can't be created. `finished` is called after
    // the file was written.
    explicit ProfileSession(ProfileKwargs options = {}, int process_index = 0,
                            std::function<void()> finished = {});
    // Calls stop(), and throws its exceptions unless another one is unwinding the stack. In a
    // std::optional or std::unique_ptr an exception would end the program: call stop() before.
    ~ProfileSession() noexcept(false);
    ProfileSession(const ProfileSession&) = delete;
    ProfileSession& operator=(const ProfileSession&) = delete;

    // Call at the end of each step of the loop. Throws UsageError after stop().
    void step();
    // Ends the session. The trace stays available. Further calls do nothing.
    void stop();

    std::int64_t step_num() const { return step_; }
    ProfilerAction current_action() const { return action_; }

    // Returns the trace of the latest cycle, or of the recording so far.
    const profiler::Trace& trace();
    // Returns statistics of the trace by operation.
    std::vector<profiler::Row> key_averages(bool group_by_input_shape = false);
    // Writes the trace in Chrome's format. Throws FileError.
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
    int unwinding_ = std::uncaught_exceptions();

    std::int64_t step_ = 0;
    ProfilerAction action_ = ProfilerAction::none;
    bool recording_ = false;  // the profiler runs for this session
    bool stopped_ = false;
    std::optional<profiler::RecordFunction> step_scope_;
    profiler::Trace trace_;
};

}  // namespace axle::accel
