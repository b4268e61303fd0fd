// Private to accel: the learning rates of an optimizer's captured steps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// A table of learning rates and momenta on the device, with one row per update.
//
// A captured step can't read its learning rate from the host, and the host cannot determine whether
// fp16 has skipped the step. Therefore the device counts the steps that were not skipped, and the
// optimizer reads the row with this index. The table is filled by advancing the host's schedule and
// rewinding it. The host's schedule is updated after each replay. If fp16 can skip steps, it is
// instead updated when it is read, before an eager step, and at the end of the table.
class DeviceRates {
  public:
    static constexpr std::int64_t kSteps = 1024;  // number of steps in a table

    // take_step(scheduler) advances the schedule by one update. can_skip: whether fp16 can skip
    // updates.
    DeviceRates(optim::Optimizer& optimizer, optim::Scheduler& scheduler, Device device,
                bool can_skip, std::function<void(optim::Scheduler&)> take_step);

    const optim::Optimizer& optimizer() const { return optimizer_; }
    const optim::Scheduler& scheduler() const { return scheduler_; }

    // Between these two calls, the kernels of the optimizer read their rates from the table.
    void begin_capture();
    void end_capture();
    // Launches a kernel that increments the device's step count unless the optimizer has skipped
    // the step.
    void count_step();

    // Called before a replay of at most `steps` steps. Returns whether the table has rates for
    // these steps. Returns false if the schedule ends within these steps; an eager step then throws
    // the schedule's error.
    bool prepare(std::int64_t steps);
    // Called after a replay of at most `steps` steps.
    void note_replay(std::int64_t steps);

    // Advances the host's schedule and rates to the device's count. Reads device memory if fp16 can
    // skip steps and there were replays since the last call.
    void catch_up();
    // Calls catch_up() and, if replays have changed the optimizer's rates on the device, restores
    // them. Called before the optimizer steps eagerly.
    void settle();
    // Discards the table. Called after the schedule's state has been replaced.
    void forget() { filled_ = false; }

  private:
    // The host's rates and schedule position. A saved copy is compared with the current values to
    // detect changes by the program.
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

    // table_: f64 [kSteps + 1, groups, 2]; count_: i64, the number of steps that were not skipped
    Tensor table_, count_;
    std::vector<double> rows_;   // a copy of the table
    std::int64_t capacity_ = 0;  // index of the last row
    std::int64_t possible_ = 0;  // an upper bound of count_, known without reading the device
    std::int64_t followed_ = 0;  // the row of the host's schedule
    HostState left_;             // the host's state at row followed_
    bool filled_ = false;
    // Whether replays have changed the optimizer's rates on the device.
    bool changed_options_ = false;
    bool busy_ = false;  // whether this object is advancing the schedule
};

}  // namespace axle::accel
