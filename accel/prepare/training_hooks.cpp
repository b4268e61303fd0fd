#include "accel/prepare/training_hooks.h"

namespace axle::accel {

optim::StepPlan TrainingHooks::before_step(optim::Optimizer& optimizer) {
    if (!loop_->accumulation.sync_gradients()) return {.allowed = false};
    loop_->recorder.before_step(optimizer);
    loop_->accumulation.division().before_step(optimizer);
    if (loop_->scaling) return {.scalars = loop_->scaling->before_step(optimizer)};
    return {};
}

bool TrainingHooks::before_zero_grad(optim::Optimizer& optimizer) {
    if (!loop_->accumulation.sync_gradients()) return false;
    loop_->accumulation.division().before_zero_grad(optimizer);
    if (loop_->scaling) loop_->scaling->before_zero_grad(optimizer);
    return true;
}

void TrainingHooks::step(optim::Scheduler& scheduler) {
    if (loop_->schedules.step_with_optimizer && !loop_->accumulation.sync_gradients()) return;
    if (loop_->recorder.record(scheduler)) return;
    loop_->step_schedule(scheduler);
}

}  // namespace axle::accel
