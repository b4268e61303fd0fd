// Private to accel: records what a captured step does on the host, so that replays can repeat it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "accel/loop/device_rates.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// The effects of one captured step on the host.
struct StepRecord {
    int micro_batches = 0;
    // The tables of optimizers that read their rates on the device, each with its number of
    // schedule steps.
    std::vector<std::pair<DeviceRates*, std::int64_t>> rates = {};
    // The schedulers that step on the host. `early_schedulers` step before their optimizer, which
    // uses the new rate; `schedulers` step after their optimizer.
    std::vector<optim::Scheduler*> early_schedulers = {}, schedulers = {};
    // The optimizers, one element per step, in the order of the steps.
    std::vector<const optim::Optimizer*> optimizers = {};
    // The scaler's state at the end of the step.
    optim::GradScaler::ProgressMap scaler = {};

    // Adds a step of an optimizer. Throws UsageError if a schedule steps between two steps of its
    // optimizer.
    void add_step(const optim::Optimizer& optimizer);
    // Adds a step of a schedule. Throws UsageError for a schedule that needs a metric.
    void add_step(optim::Scheduler& scheduler);
};

// Observes the steps of prepared optimizers and schedulers. While a step is captured, adds them to
// a record; otherwise keeps the host's schedules consistent with replays on the device.
class StepRecorder {
  public:
    void start(StepRecord& record) { record_ = &record; }
    void stop() { record_ = nullptr; }

    // Called when a micro-batch begins.
    void add_micro_batch() {
        if (record_ != nullptr) ++record_->micro_batches;
    }
    // Called before an optimizer steps.
    void before_step(const optim::Optimizer& optimizer);
    // Records a schedule's step and returns true, or returns false if no step is being captured.
    bool record(optim::Scheduler& scheduler);
    // Update the rates of the optimizer and its schedule on the host after replayed steps.
    void catch_up(const optim::Optimizer& optimizer);
    void catch_up(const optim::Scheduler& scheduler);

    // Returns the table of rates for the optimizer's captured steps, or nullptr if there is none.
    DeviceRates* rates_of(const optim::Optimizer& optimizer) const;
    DeviceRates& add_rates(std::unique_ptr<DeviceRates> rates);
    void remove_rates(const DeviceRates& rates);
    // Remove the rates of an optimizer or a scheduler. The object may be destroyed already; only
    // its address is used.
    void forget(const optim::Optimizer& optimizer);
    void forget(const optim::Scheduler& scheduler);
    // Calls settle() for all tables of rates and removes them.
    void clear();
    // Discards the contents of all tables of rates. Called after schedules were loaded from a
    // checkpoint.
    void forget_schedules();

  private:
    StepRecord* record_ = nullptr;  // the record of the step that is being captured, or nullptr
    std::vector<std::unique_ptr<DeviceRates>> rates_;
};

}  // namespace axle::accel
