// Private to accel: the state of the training loop, shared by an Accelerator and the hooks of the
// objects that it has prepared.
#pragma once

#include <memory>

#include "accel/loop/accumulation.h"
#include "accel/loop/step_record.h"
#include "accel/precision/loss_scaling.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// Options that decide by how many steps an update advances a prepared schedule.
struct ScheduleOptions {
    bool step_with_optimizer = true;  // if false, each step() is one step of the schedule
    int steps_per_update = 1;         // schedule steps of each update
    // Whether steps_per_update is multiplied by the number of micro-batches of the update.
    bool count_micro_batches = false;
};

// Base class of schedules that advance by one step per update, independent of ScheduleOptions.
struct OneStepPerUpdate {
    virtual ~OneStepPerUpdate() = default;
};

// The state of the training loop. The hooks of prepared objects share its ownership, because
// prepared objects can outlive the Accelerator. Used by one thread.
struct LoopState {
    Accumulation accumulation;
    std::unique_ptr<LossScaling> scaling;  // nullptr unless fp16 scales losses
    StepRecorder recorder;
    ScheduleOptions schedules;
    // Whether MegatronEngine::train_step() has updated the parameters after the last gradients.
    // Then step() and zero_grad() of prepared optimizers and step() of schedules do nothing.
    bool has_updated = false;

    // Returns whether schedules don't advance in updates that fp16 skips.
    bool schedules_can_skip() const { return scaling != nullptr && schedules.step_with_optimizer; }
    // Advances a schedule by the steps of one update, but not beyond its last step. If
    // step_with_optimizer is false or the schedule is a OneStepPerUpdate, calls advance() once,
    // which can throw after the last step.
    void advance_schedule(optim::Scheduler& scheduler) const;
    // Calls advance_schedule() unless the update was skipped. May read device memory in fp16.
    void step_schedule(optim::Scheduler& scheduler) const;
};

}  // namespace axle::accel
