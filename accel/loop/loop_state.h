// Private to accel: the state of the training loop, shared by an Accelerator and the hooks of the
// objects that it has prepared.
#pragma once

#include <memory>

#include "accel/loop/accumulation.h"
#include "accel/loop/step_record.h"
#include "accel/precision/loss_scaling.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// How prepared schedules follow the updates.
struct ScheduleOptions {
    bool step_with_optimizer = true;  // false: each step() is one step of the schedule
    int steps_per_update = 1;
    bool count_micro_batches = false;  // steps_per_update are taken for each micro-batch
};

// Hooks share the ownership: prepared objects can outlive the Accelerator. Used by one thread.
struct LoopState {
    Accumulation accumulation;
    std::unique_ptr<LossScaling> scaling;  // fp16 only
    StepRecorder recorder;
    ScheduleOptions schedules;

    // Returns whether schedules skip the updates that fp16 has skipped.
    bool schedules_can_skip() const { return scaling != nullptr && schedules.step_with_optimizer; }
    // Advances a schedule by one update, up to its end.
    void advance_schedule(optim::Scheduler& scheduler) const;
    // advance_schedule(), unless the update was skipped. Can read device memory in fp16.
    void step_schedule(optim::Scheduler& scheduler) const;
};

}  // namespace axle::accel
