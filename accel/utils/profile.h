// Profiling a training loop: which steps are recorded, and what becomes of them.
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

// torch.profiler.schedule: after skip_first steps, cycles of wait, warmup and active steps; repeat
// cycles, or without end for 0.
struct ProfileSchedule {
    std::int64_t wait = 0;
    std::int64_t warmup = 0;  // recorded and thrown away
    std::int64_t active = 1;
    std::int64_t repeat = 0;
    std::int64_t skip_first = 0;
};

// ValueError for a negative count, or no active step.
void check_schedule(const ProfileSchedule& schedule);

enum class ProfilerAction : std::uint8_t { none, warmup, record, record_and_save };
ProfilerAction action_at(const ProfileSchedule& schedule, std::int64_t step);

// In the order of Accelerate's ProfileKwargs.
struct ProfileKwargs {
    // "cpu" and "cuda", which adds nothing where there is no GPU; empty for all that there is.
    std::vector<std::string> activities = {};
    // Without one, everything is recorded until stop().
    std::optional<ProfileSchedule> schedule_option = {};
    // After the last active step of a cycle, and when the session stops while it records.
    std::function<void(ProfileSession&)> on_trace_ready = {};
    bool record_shapes = false;   // of the ops' operands
    bool profile_memory = false;  // the allocator's state over time
    // PyTorch's, which record nothing here: a session that is asked for them says so once.
    bool with_stack = false, with_flops = false, with_modules = false;
    // stop() writes the latest trace to profile_<process index>.json in it; the folder is made.
    // Empty: no file.
    std::string output_trace_dir = {};
};

// Records from construction to stop(), as far as the schedule says so; one session at a time in a
// process. All calls come from the thread that made it.
class ProfileSession {
  public:
    // ValueError for an unknown activity or a bad schedule; UsageError if something records
    // already; FileError if the folder can't be made. `finished` is called after the file has been
    // written.
    explicit ProfileSession(ProfileKwargs options = {}, int process_index = 0,
                            std::function<void()> finished = {});
    // stop(); its exceptions arrive here too, but not while another one unwinds the stack. In a
    // std::optional or std::unique_ptr they would end the program: call stop() before.
    ~ProfileSession() noexcept(false);
    ProfileSession(const ProfileSession&) = delete;
    ProfileSession& operator=(const ProfileSession&) = delete;

    // A step of the loop is done.
    void step();
    // Ends the session; again it does nothing. What was recorded can still be asked for.
    void stop();

    std::int64_t step_num() const { return step_; }
    ProfilerAction current_action() const { return action_; }

    // The latest trace: that of the cycle that has ended, or what has been recorded so far.
    const profiler::Trace& trace();
    std::vector<profiler::Row> key_averages(bool group_by_input_shape = false);
    // Of the latest trace, as a Chrome trace. FileError.
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
    bool recording_ = false;  // the profiler runs, for this session
    bool stopped_ = false;
    std::optional<profiler::RecordFunction> step_scope_;
    profiler::Trace trace_;
};

}  // namespace axle::accel
