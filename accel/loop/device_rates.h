// Private to accel: the rates of an optimizer's captured steps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// A captured step can't ask the host for its learning rate, nor tell it whether the step was
// skipped and the schedule stood still. So the device has a table of the rates (and momenta) that
// the next steps of the schedule will set, and counts the steps that are taken; the optimizer reads
// the row of the count. The host's schedule, stepped ahead to make the table and put back, follows
// when somebody looks at it, when a step is taken eagerly, and at the table's end.
class DeviceRates {
  public:
    static constexpr std::int64_t kSteps = 1024;  // that a table is good for

    // take_step(scheduler) is one step that is taken. Where steps may be skipped only the device
    // knows how many were taken; else the host follows at once.
    DeviceRates(optim::Optimizer& optimizer, optim::Scheduler& scheduler, Device device,
                bool may_skip, std::function<void(optim::Scheduler&)> take_step);

    const optim::Optimizer& optimizer() const { return optimizer_; }
    const optim::Scheduler& scheduler() const { return scheduler_; }

    // Between these, what the optimizer queues reads the table.
    void begin_capture();
    void end_capture();
    // Queues the count of a step.
    void count_step();

    // Before a replay that counts up to that many steps. Whether the table has their rates: else
    // the schedule ends, and an eager step will say so.
    bool prepare(std::int64_t steps);
    void note_replay(std::int64_t steps);

    // Brings the host's schedule and rates to where the device is. Reads device memory, if steps
    // may have been taken since.
    void catch_up();
    // That, and the optimizer's next step is an eager one.
    void settle();
    // The schedule is another one now.
    void forget() { filled_ = false; }

  private:
    // What shows that somebody else has changed the rates.
    struct Seen {
        std::vector<double> rates;
        std::int64_t step_count = 0, epoch = 0;
        bool operator==(const Seen&) const = default;
    };

    Seen look();
    bool is_in_table(const Seen& now) const;
    void set_rates(const std::vector<double>& rates);
    void fill();
    void take_steps(std::int64_t steps);
    void accept_changes(const Seen& now);

    optim::Optimizer& optimizer_;
    optim::Scheduler& scheduler_;
    bool may_skip_;
    std::function<void(optim::Scheduler&)> take_step_;

    Tensor table_, count_;       // f64 [kSteps + 1, groups, 2], i64
    std::vector<double> rows_;   // the table as it was made
    std::int64_t capacity_ = 0;  // the last row
    std::int64_t possible_ = 0;  // count_ is not higher
    std::int64_t followed_ = 0;  // the host's schedule is at this row
    Seen left_;                  // there
    bool filled_ = false;
    bool changed_options_ = false;  // a replay has written the optimizer's on the device
    bool busy_ = false;             // with the schedule
};

}  // namespace axle::accel
