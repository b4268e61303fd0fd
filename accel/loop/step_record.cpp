#include "accel/loop/step_record.h"

#include <algorithm>

#include "kernels/error.h"

namespace axle::accel {

void StepRecord::add_step(const optim::Optimizer& optimizer) {
    const bool again = std::ranges::find(optimizers, &optimizer) != optimizers.end();
    std::erase_if(schedulers, [&](optim::Scheduler* scheduler) {
        if (!scheduler->is_for(optimizer)) return false;
        if (again)
            throw UsageError(
                "compile: a schedule must not step between two steps of its optimizer, because "
                "rates are sent to the device once per replay; step the schedule after the last "
                "step of the optimizer");
        early_schedulers.push_back(scheduler);
        return true;
    });
    optimizers.push_back(&optimizer);
}

void StepRecord::add_step(optim::Scheduler& scheduler) {
    if (scheduler.needs_metric())
        throw UsageError(
            "compile: a schedule that needs a metric can't step during capture, because the metric "
            "has no value yet; step it outside of the captured function");
    for (auto& [on_device, steps] : rates)
        if (&on_device->scheduler() == &scheduler) {
            on_device->count_step();
            ++steps;
            return;
        }
    schedulers.push_back(&scheduler);
}

void StepRecorder::before_step(const optim::Optimizer& optimizer) {
    if (record_ != nullptr)
        record_->add_step(optimizer);
    else if (DeviceRates* const rates = rates_of(optimizer))
        rates->settle();
}

bool StepRecorder::record(optim::Scheduler& scheduler) {
    if (record_ == nullptr) return false;
    record_->add_step(scheduler);
    return true;
}

void StepRecorder::catch_up(const optim::Optimizer& optimizer) {
    if (DeviceRates* const rates = rates_of(optimizer)) rates->catch_up();
}

void StepRecorder::catch_up(const optim::Scheduler& scheduler) {
    for (const auto& rates : rates_)
        if (&rates->scheduler() == &scheduler) rates->catch_up();
}

DeviceRates* StepRecorder::rates_of(const optim::Optimizer& optimizer) const {
    for (const auto& rates : rates_)
        if (&rates->optimizer() == &optimizer) return rates.get();
    return nullptr;
}

DeviceRates& StepRecorder::add_rates(std::unique_ptr<DeviceRates> rates) {
    rates_.push_back(std::move(rates));
    return *rates_.back();
}

void StepRecorder::remove_rates(const DeviceRates& rates) {
    std::erase_if(rates_, [&](const auto& one) { return one.get() == &rates; });
}

void StepRecorder::forget(const optim::Optimizer& optimizer) {
    std::erase_if(rates_, [&](const auto& one) { return &one->optimizer() == &optimizer; });
}
void StepRecorder::forget(const optim::Scheduler& scheduler) {
    std::erase_if(rates_, [&](const auto& one) { return &one->scheduler() == &scheduler; });
}

void StepRecorder::clear() {
    for (const auto& rates : rates_) rates->settle();
    rates_.clear();
}

void StepRecorder::forget_schedules() {
    for (const auto& rates : rates_) rates->forget();
}

}  // namespace axle::accel
