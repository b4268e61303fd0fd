#include "accel/loop/loop_state.h"

namespace axle::accel {

void LoopState::advance_schedule(optim::Scheduler& scheduler) const {
    if (!schedules.step_with_optimizer) return scheduler.advance();
    const std::int64_t window = accumulation.counts().window;
    const std::int64_t counted = window > 0 ? window : accumulation.options().num_steps;
    if (dynamic_cast<const OneStepPerUpdate*>(&scheduler) != nullptr) return scheduler.advance();
    const std::int64_t steps =
        schedules.steps_per_update * (schedules.count_micro_batches ? counted : 1);
    for (std::int64_t i = 0; i < steps; ++i) {
        const auto total = scheduler.total_steps();
        if (total && scheduler.step_count() > *total) return;
        scheduler.advance();
    }
}

void LoopState::step_schedule(optim::Scheduler& scheduler) const {
    if (schedules_can_skip() && scaling->was_skipped(scheduler.optimizer())) return;
    advance_schedule(scheduler);
}

}  // namespace axle::accel
