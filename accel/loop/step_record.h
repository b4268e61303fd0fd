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

// The host side of one captured step.
struct StepRecord {
    int micro_batches = 0;
    // Optimizers that read their rates on the device, and how many schedule steps each counts.
    std::vector<std::pair<DeviceRates*, std::int64_t>> rates = {};
    // The schedulers that step on the host: before the step of their optimizer, which uses the new
    // rate, and after it.
    std::vector<optim::Scheduler*> early_schedulers = {}, schedulers = {};
    std::vector<const optim::Optimizer*> optimizers = {};  // in the order of their steps
    optim::GradScaler::ProgressMap scaler = {};            // at the end of the step

    // Throws UsageError if a schedule steps between two steps of its optimizer.
    void add_step(const optim::Optimizer& optimizer);
    // Throws UsageError for a schedule that needs a metric.
    void add_step(optim::Scheduler& scheduler);
};

// Receives the steps of prepared optimizers and schedulers: writes them to a record while a step is
// captured, and otherwise keeps the host's schedules consistent with replays on the device.
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
    // Records a schedule's step and returns true; returns false if no step is being captured.
    bool record(optim::Scheduler& scheduler);
    // Brings the host's options and schedule up to date with replayed steps.
    void catch_up(const optim::Optimizer& optimizer);
    void catch_up(const optim::Scheduler& scheduler);

    // Returns the rates of the optimizer's captured steps, or nullptr.
    DeviceRates* rates_of(const optim::Optimizer& optimizer) const;
    DeviceRates& add_rates(std::unique_ptr<DeviceRates> rates);
    void remove_rates(const DeviceRates& rates);
    // Settles all rates and removes them.
    void clear();
    // Called after schedules were loaded from a checkpoint.
    void forget_schedules();

  private:
    StepRecord* record_ = nullptr;  // the record of the step that is being captured
    std::vector<std::unique_ptr<DeviceRates>> rates_;
};

}  // namespace axle::accel
