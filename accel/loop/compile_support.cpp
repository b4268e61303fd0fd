// What a compiled step asks of its Accelerator.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "accel/accelerator.h"
#include "accel/loop/step_record.h"
#include "accel/process/accelerator_state.h"

namespace axle::inline v0::accel {

void StepRecord::optimizer_steps(const optim::Optimizer& optimizer) {
    const bool again = std::ranges::find(optimizers, &optimizer) != optimizers.end();
    std::erase_if(schedulers, [&](optim::Scheduler* scheduler) {
        if (&scheduler->optimizer() != &optimizer) return false;
        if (again)
            throw UsageError(
                "compile: a schedule steps between two steps of its optimizer, whose rates are "
                "handed over once per replay");
        early_schedulers.push_back(scheduler);
        return true;
    });
    optimizers.push_back(&optimizer);
}

void StepRecord::scheduler_steps(optim::Scheduler& scheduler) {
    if (scheduler.needs_metric())
        throw UsageError(
            "compile: a schedule that needs a metric can't step in a captured step, which knows no "
            "numbers: step it outside");
    for (auto& [on_device, steps] : rates)
        if (&on_device->scheduler() == &scheduler) {
            on_device->count_step();
            ++steps;
            return;
        }
    schedulers.push_back(&scheduler);
}

std::int64_t Accelerator::micro_batches() const { return state_->opened; }

std::string Accelerator::step_kind(bool of_several) const {
    const bool last = state_->ends_pass();
    const bool completes = last || (state_->step + 1) % state_->num_steps == 0;
    std::string kind = str(state_->num_steps, completes, state_->sync_gradients);
    // What the gradients of a short one are divided by is part of the graph.
    if (state_->short_window == ShortWindow::actual)
        kind += str(" window ", state_->sync_gradients ? 0 : state_->window);
    if (of_several) kind += str(" at ", last ? -1 : state_->step % state_->num_steps);
    for (const nn::Module* model : models_) kind += model->is_training() ? " train" : " eval";
    kind += str(" prepared ", state_->preparations);
    if (state_->scaling) kind += " scaler" + state_->scaling->stages();
    return kind;
}

std::vector<Tensor> Accelerator::step_parameters() const {
    std::vector<Tensor> all;
    for (const nn::Module* model : models_)
        for (const Tensor& parameter : model->parameters()) all.push_back(parameter);
    std::unordered_set<const Impl*> found;
    for (const Tensor& parameter : all) found.insert(parameter.impl().get());
    for (optim::Optimizer* optimizer : optimizers_)
        for (const Tensor& parameter : optimizer->parameters())
            if (found.insert(parameter.impl().get()).second) all.push_back(parameter);
    return all;
}

template <class F>
void Accelerator::for_each_rate(F&& f) const {
    for (optim::Optimizer* optimizer : optimizers_)
        for (const optim::GroupRef group : optimizer->param_groups()) {
            f(group.lr);
            f(group.momentum);
        }
}

Accelerator::BeforeStep Accelerator::before_step() const {
    BeforeStep before = {
        state_->step, state_->opened, state_->window, state_->sync_gradients, {}, {}, {}};
    if (state_->scaling) before.scaler = state_->scaling->scaler().progress();
    for (const optim::Scheduler* s : schedulers_) before.schedulers.push_back(s->state_dict());
    for_each_rate([&](double& rate) { before.rates.push_back(rate); });
    return before;
}

void Accelerator::rewind_counts(const BeforeStep& before) {
    state_->step = before.step;
    state_->opened = before.opened;
    state_->window = before.window;
    state_->sync_gradients = before.sync_gradients;
    if (state_->scaling) state_->scaling->scaler().set_progress(before.scaler);
}

void Accelerator::rewind_step(const BeforeStep& before) {
    rewind_counts(before);
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        schedulers_[i]->load_state_dict(before.schedulers[i]);
    std::size_t next = 0;
    for_each_rate([&](double& rate) { rate = before.rates[next++]; });
}

// The only schedule of an optimizer, if it can look ahead. Not one that goes on by the length of
// each update, which is known when it is there.
optim::Scheduler* Accelerator::schedule_of(const optim::Optimizer& optimizer) const {
    optim::Scheduler* found = nullptr;
    if (state_->adjust_scheduler) return found;
    for (optim::Scheduler* scheduler : schedulers_) {
        if (&scheduler->optimizer() != &optimizer) continue;
        if (found != nullptr || !scheduler->can_look_ahead()) return nullptr;
        found = scheduler;
    }
    return found;
}

DeviceRates* Accelerator::device_rates_of(optim::Optimizer& optimizer) {
    optim::Scheduler* const schedule = schedule_of(optimizer);
    DeviceRates* const rates = state_->rates_of(optimizer);
    if (rates != nullptr) {
        rates->settle();
        if (schedule == &rates->scheduler()) return rates;
        std::erase_if(state_->rates, [&](const auto& one) { return one.get() == rates; });
    }
    if (schedule == nullptr) return nullptr;
    const bool may_skip = state_->scaling != nullptr && state_->step_scheduler_with_optimizer;
    state_->rates.push_back(std::make_unique<DeviceRates>(
        optimizer, *schedule, device(), may_skip,
        [state = state_.get()](optim::Scheduler& scheduler) { state->take_step(scheduler); }));
    return state_->rates.back().get();
}

void Accelerator::begin_recording(StepRecord& record) {
    for (optim::Optimizer* optimizer : optimizers_) {
        DeviceRates* const rates = device_rates_of(*optimizer);
        optimizer->push_options();
        if (rates == nullptr || !rates->prepare(1)) continue;
        rates->begin_capture();
        record.rates.emplace_back(rates, 0);
    }
    state_->record = &record;
}

void Accelerator::end_recording(StepRecord& record) {
    state_->record = nullptr;
    for (const auto& [rates, steps] : record.rates) rates->end_capture();
    if (state_->scaling) record.scaler = state_->scaling->scaler().progress();
}

bool Accelerator::can_replay(const StepRecord& record) {
    return std::ranges::all_of(record.rates,
                               [](const auto& r) { return r.first->prepare(r.second); });
}

void Accelerator::before_replay(const StepRecord& record) {
    for (int i = 0; i < record.accumulations; ++i) state_->count_micro_batch();
    for (optim::Scheduler* scheduler : record.early_schedulers) state_->step_schedule(*scheduler);
    for (optim::Optimizer* optimizer : optimizers_) optimizer->push_options();
}

void Accelerator::after_replay(const StepRecord& record, const std::vector<Tensor>& parameters) {
    for (const Tensor& p : parameters) p.impl()->storage->bump_version();
    for (const nn::Module* model : models_)
        for (const auto& [name, buffer] : model->named_buffers())
            buffer.impl()->storage->bump_version();
    if (state_->scaling) {
        state_->scaling->forget_skips();
        state_->scaling->scaler().set_progress(record.scaler);
    }
    for (const auto& [rates, steps] : record.rates) rates->note_replay(steps);
    for (optim::Scheduler* scheduler : record.schedulers) state_->step_schedule(*scheduler);
}

std::vector<std::shared_ptr<Storage>> Accelerator::step_memory(
    const std::vector<Tensor>& parameters) const {
    std::vector<std::shared_ptr<Storage>> all;
    const auto add = [&](const Tensor& t) {
        if (t.defined()) all.push_back(t.impl()->storage);
    };
    for (const Tensor& parameter : parameters) add(parameter);
    for (const nn::Module* model : models_)
        for (const auto& [name, buffer] : model->named_buffers()) add(buffer);
    for (const optim::Optimizer* optimizer : optimizers_)
        for (const Tensor& parameter : parameters)
            if (const optim::ParamState* state = optimizer->state(parameter)) {
                add(state->step);
                for (const Tensor& buffer : state->buffers) add(buffer);
            }
    return all;
}

}  // namespace axle::inline v0::accel
