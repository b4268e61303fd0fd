// Private to accel: the learning rates of an optimizer's captured steps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// A table of learning rates (and momenta) on the device, one row per schedule step. A captured step
// can't read its learning rate from the host, and can't report to the host whether the step was
// skipped, in which case the schedule does not advance. So the device counts the steps that are
// taken, and the optimizer reads the row of that count. The table is filled by advancing the host's
// schedule and rewinding it. The host's schedule catches up when it is read, when a step is taken
// eagerly, and at the end of the table.
class DeviceRates {
  public:
    static constexpr std::int64_t kSteps = 1024;  // steps in a table

    // take_step(scheduler) advances the schedule by one update. If updates can be skipped, only the
    // device counts the updates that were taken; otherwise the host's schedule follows each replay.
    DeviceRates(optim::Optimizer& optimizer, optim::Scheduler& scheduler, Device device,
                bool can_skip, std::function<void(optim::Scheduler&)> take_step);

    const optim::Optimizer& optimizer() const { return optimizer_; }
    const optim::Scheduler& scheduler() const { return scheduler_; }

    // Between these calls, kernels that the optimizer launches read the table.
    void begin_capture();
    void end_capture();
    // Launches a kernel that counts a step, unless the optimizer has skipped it.
    void count_step();

    // Called before a replay that counts up to `steps` steps. Returns whether the table has their
    // rates. If not, the schedule ends: an eager step will throw the error.
    bool prepare(std::int64_t steps);
    void note_replay(std::int64_t steps);

    // Brings the host's schedule and rates up to date with the device. Reads device memory if there
    // were replays since the last call.
    void catch_up();
    // Catches up before the optimizer steps eagerly.
    void settle();
    // Called after the schedule's state has been replaced.
    void forget() { filled_ = false; }

  private:
    // The host's rates and schedule position: a difference shows that the program has changed them.
    struct HostState {
        std::vector<double> rates;
        std::int64_t step_count = 0, epoch = 0;
        bool operator==(const HostState&) const = default;
    };

    HostState host_state();
    bool is_in_table(const HostState& now) const;
    void set_rates(const std::vector<double>& rates);
    void fill();
    void take_steps(std::int64_t steps);
    void accept_changes(const HostState& now);

    optim::Optimizer& optimizer_;
    optim::Scheduler& scheduler_;
    bool can_skip_;
    std::function<void(optim::Scheduler&)> take_step_;

    Tensor table_, count_;       // f64 [kSteps + 1, groups, 2], i64
    std::vector<double> rows_;   // a copy of the table
    std::int64_t capacity_ = 0;  // index of the last row
    std::int64_t possible_ = 0;  // upper bound of count_
    std::int64_t followed_ = 0;  // the row of the host's schedule
    HostState left_;             // the host's state at row followed_
    bool filled_ = false;
    bool changed_options_ = false;  // replays have changed the optimizer's options on the device
    bool busy_ = false;             // while this class uses the schedule itself
};

}  // namespace axle::accel
