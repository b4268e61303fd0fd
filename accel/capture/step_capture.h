// Private to accel: StepCapture, the part of an Accelerator that compile() uses to capture and
// replay a step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "accel/loop/loop_state.h"
#include "accel/loop/step_record.h"
#include "accel/prepare/preparation.h"
#include "core/tensor.h"

namespace axle::accel {

// Records the effects of a step on the host while it is captured, repeats them for each replay, and
// undoes them if the capture fails. Refers to the prepared objects and to the state of the loop.
// Used by one thread.
class StepCapture {
  public:
    // The host state that a step changes.
    struct Snapshot {
        Accumulation::Counts counts;
        optim::GradScaler::ProgressMap scaler = {};
        std::vector<Tree> schedulers = {};
        std::vector<double> rates = {};  // learning rate and momentum of each group
    };

    StepCapture(Preparation& prepared, LoopState& loop, Device device)
        : prepared_(prepared), loop_(loop), device_(device) {}

    Device device() const { return device_; }
    int accumulation_steps() const { return loop_.accumulation.options().num_steps; }
    // Returns the number of micro-batches that have begun.
    std::int64_t micro_batches() const { return loop_.accumulation.counts().opened; }
    // Returns a string that is equal for steps that can share a graph. `of_several` is true if the
    // step consists of several micro-batches.
    std::string step_key(bool of_several) const;
    // Returns the parameters of the prepared models, and the parameters of prepared optimizers that
    // are in no prepared model.
    std::vector<Tensor> parameters() const;
    // Returns the storages of `parameters`, buffers and optimizer state. A graph is valid as long
    // as these storages are not replaced.
    std::vector<std::shared_ptr<Storage>> memory(const std::vector<Tensor>& parameters) const;

    Snapshot snapshot() const;
    // Restores the counters and the scaler's progress, but not the schedules and rates.
    void rewind_counts(const Snapshot& before);
    // Restores the state in the snapshot.
    void rewind(const Snapshot& before);

    // Called before and after the capture of a step.
    void begin_recording(StepRecord& record);
    void end_recording(StepRecord& record);

    // Returns false if the step must run eagerly, because a schedule would end within the step.
    bool can_replay(const StepRecord& record);
    // Called before and after a replay. Repeat the effects of the step on the host.
    void before_replay(const StepRecord& record);
    void after_replay(const StepRecord& record, const std::vector<Tensor>& parameters);

  private:
    template <class F>
    void for_each_rate(F&& f) const;
    optim::Scheduler* schedule_of(const optim::Optimizer& optimizer) const;
    DeviceRates* device_rates_of(optim::Optimizer& optimizer);

    Preparation& prepared_;
    LoopState& loop_;
    Device device_;
};

}  // namespace axle::accel
