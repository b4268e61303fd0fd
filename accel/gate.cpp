// What the gates of optimizers and schedulers do.
#include "accel/loop/step_record.h"
#include "accel/process/accelerator_state.h"

namespace axle::inline v0::accel {

DeviceRates* Accelerator::State::rates_of(const optim::Optimizer& optimizer) const {
    for (const auto& one : rates)
        if (&one->optimizer() == &optimizer) return one.get();
    return nullptr;
}

void Accelerator::State::take_step(optim::Scheduler& scheduler) const {
    if (!step_scheduler_with_optimizer) return scheduler.advance();
    const std::int64_t counted = window > 0 ? window : num_steps;
    for (std::int64_t i = 0; i < scheduler_steps * (adjust_scheduler ? counted : 1); ++i) {
        const auto total = scheduler.total_steps();
        if (total && scheduler.step_count() > *total) return;
        scheduler.advance();
    }
}

void Accelerator::State::step_schedule(optim::Scheduler& scheduler) const {
    const bool may_skip = scaling != nullptr && step_scheduler_with_optimizer;
    if (may_skip && scaling->was_skipped(scheduler.optimizer())) return;
    take_step(scheduler);
}

optim::StepPlan Accelerator::Gate::before_step(optim::Optimizer& optimizer) {
    if (!state_->sync_gradients) return {.allowed = false};
    if (state_->record != nullptr)
        state_->record->optimizer_steps(optimizer);
    else if (DeviceRates* const rates = state_->rates_of(optimizer))
        rates->settle();
    state_->division.before_step(optimizer);
    if (state_->scaling) return {.scalars = state_->scaling->before_step(optimizer)};
    return {};
}

bool Accelerator::Gate::before_zero_grad(optim::Optimizer& optimizer) {
    if (!state_->sync_gradients) return false;
    state_->division.before_zero_grad(optimizer);
    if (state_->scaling) state_->scaling->before_zero_grad(optimizer);
    return true;
}

void Accelerator::Gate::before_access(optim::Optimizer& optimizer) {
    if (DeviceRates* const rates = state_->rates_of(optimizer)) rates->catch_up();
}

void Accelerator::Gate::step(optim::Scheduler& scheduler) {
    if (state_->step_scheduler_with_optimizer && !state_->sync_gradients) return;
    if (state_->record != nullptr) return state_->record->scheduler_steps(scheduler);
    state_->step_schedule(scheduler);
}

void Accelerator::Gate::before_access(const optim::Scheduler& scheduler) {
    for (const auto& rates : state_->rates)
        if (&rates->scheduler() == &scheduler) rates->catch_up();
}

}  // namespace axle::inline v0::accel
