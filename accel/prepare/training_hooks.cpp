#include "accel/prepare/training_hooks.h"

#include "accel/prepare/preparation.h"

namespace axle::accel {

optim::StepPlan TrainingHooks::before_step(optim::Optimizer& optimizer) {
    if (!allows_step(optimizer)) return {.allowed = false};
    if (owner_ != nullptr) owner_->check_first_step(optimizer);
    loop_->recorder.before_step(optimizer);
    loop_->accumulation.division().before_step(optimizer);
    if (owner_ != nullptr) owner_->clip_gradients(optimizer);
    if (loop_->scaling) return {.scalars = loop_->scaling->before_step(optimizer)};
    return {};
}

bool TrainingHooks::before_zero_grad(optim::Optimizer& optimizer) {
    if (!allows_step(optimizer)) return false;
    loop_->accumulation.division().before_zero_grad(optimizer);
    if (loop_->scaling) loop_->scaling->before_zero_grad(optimizer);
    return true;
}

void TrainingHooks::step(optim::Scheduler& scheduler) {
    if (loop_->has_updated) return;
    if (loop_->schedules.step_with_optimizer && !loop_->accumulation.sync_gradients()) return;
    if (loop_->recorder.record(scheduler)) return;
    loop_->step_schedule(scheduler);
}

void TrainingHooks::detached(const optim::Optimizer& optimizer) noexcept {
    loop_->accumulation.division().remove(optimizer);
    loop_->recorder.forget(optimizer);
    if (loop_->scaling) loop_->scaling->remove(optimizer);
    if (owner_ != nullptr) owner_->forget(optimizer);
}

void TrainingHooks::detached(const optim::Scheduler& scheduler) noexcept {
    loop_->recorder.forget(scheduler);
    if (owner_ != nullptr) owner_->forget(scheduler);
}

void TrainingHooks::detached(const nn::Module& model) noexcept {
    loop_->accumulation.division().remove(model);
    if (owner_ != nullptr) owner_->forget(model);
}

void TrainingHooks::moved(const nn::Module& from, nn::Module& to) noexcept {
    loop_->accumulation.division().replace(from, to);
    if (owner_ != nullptr) owner_->replace(from, to);
}

void ActiveLoaderHooks::detached(const data::DataLoader& loader) noexcept {
    loop_->accumulation.forget(loader);
    if (training_->owner() != nullptr) training_->owner()->forget(loader);
}

// A loader moves only between passes; then the accumulation does not need its address.
void ActiveLoaderHooks::moved(const data::DataLoader& from, data::DataLoader& to) noexcept {
    loop_->accumulation.forget(from);
    if (training_->owner() != nullptr) training_->owner()->replace(from, to);
}

}  // namespace axle::accel
