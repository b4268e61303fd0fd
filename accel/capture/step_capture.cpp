#include "accel/capture/step_capture.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/error.h"

namespace axle::accel {

std::string StepCapture::step_key(bool of_several) const {
    std::string key = loop_.accumulation.position_key(of_several);
    for (const nn::Module* model : prepared_.models())
        key += model->is_training() ? " train" : " eval";
    key += str(" prepared ", prepared_.revision());
    if (loop_.scaling) key += " scaler" + loop_.scaling->stages();
    return key;
}

std::vector<Tensor> StepCapture::parameters() const {
    std::vector<Tensor> all;
    for (const nn::Module* model : prepared_.models())
        for (const Tensor& parameter : model->parameters()) all.push_back(parameter);
    std::unordered_set<const Impl*> found;
    for (const Tensor& parameter : all) found.insert(parameter.impl().get());
    for (optim::Optimizer* optimizer : prepared_.optimizers())
        for (const Tensor& parameter : optimizer->parameters())
            if (found.insert(parameter.impl().get()).second) all.push_back(parameter);
    return all;
}

std::vector<std::shared_ptr<Storage>> StepCapture::memory(
    const std::vector<Tensor>& parameters) const {
    std::vector<std::shared_ptr<Storage>> all;
    const auto add = [&](const Tensor& t) {
        if (t.defined()) all.push_back(t.impl()->storage);
    };
    for (const Tensor& parameter : parameters) add(parameter);
    for (const nn::Module* model : prepared_.models())
        for (const auto& [name, buffer] : model->named_buffers()) add(buffer);
    for (const optim::Optimizer* optimizer : prepared_.optimizers())
        for (const Tensor& parameter : parameters)
            if (const optim::ParamState* state = optimizer->state(parameter)) {
                add(state->step);
                for (const Tensor& buffer : state->buffers) add(buffer);
            }
    return all;
}

// --- snapshots

template <class F>
void StepCapture::for_each_rate(F&& f) const {
    for (optim::Optimizer* optimizer : prepared_.optimizers())
        for (const optim::GroupRef group : optimizer->param_groups()) {
            f(group.lr);
            f(group.momentum);
        }
}

StepCapture::Snapshot StepCapture::snapshot() const {
    Snapshot before{.counts = loop_.accumulation.counts()};
    if (loop_.scaling) before.scaler = loop_.scaling->scaler().progress();
    for (const optim::Scheduler* scheduler : prepared_.schedulers())
        before.schedulers.push_back(scheduler->state_dict());
    for_each_rate([&](double& rate) { before.rates.push_back(rate); });
    return before;
}

void StepCapture::rewind_counts(const Snapshot& before) {
    loop_.accumulation.set_counts(before.counts);
    if (loop_.scaling) loop_.scaling->scaler().set_progress(before.scaler);
}

void StepCapture::rewind(const Snapshot& before) {
    rewind_counts(before);
    for (std::size_t i = 0; i < prepared_.schedulers().size(); ++i)
        prepared_.schedulers()[i]->load_state_dict(before.schedulers[i]);
    std::size_t next = 0;
    for_each_rate([&](double& rate) { rate = before.rates[next++]; });
}

// --- recording

// Returns the only schedule of an optimizer if its next rates can be computed in advance.
// Otherwise, and if the optimizer has several schedules or none, returns nullptr. The next rates of
// a schedule that counts micro-batches can't be computed, because the number of micro-batches of
// the next updates is unknown.
optim::Scheduler* StepCapture::schedule_of(const optim::Optimizer& optimizer) const {
    optim::Scheduler* found = nullptr;
    if (loop_.schedules.count_micro_batches) return found;
    for (optim::Scheduler* scheduler : prepared_.schedulers()) {
        if (!scheduler->is_for(optimizer)) continue;
        if (found != nullptr || !scheduler->can_look_ahead()) return nullptr;
        found = scheduler;
    }
    return found;
}

DeviceRates* StepCapture::device_rates_of(optim::Optimizer& optimizer) {
    optim::Scheduler* const schedule = schedule_of(optimizer);
    if (DeviceRates* const rates = loop_.recorder.rates_of(optimizer)) {
        rates->settle();
        if (schedule == &rates->scheduler()) return rates;
        loop_.recorder.remove_rates(*rates);
    }
    if (schedule == nullptr) return nullptr;
    return &loop_.recorder.add_rates(std::make_unique<DeviceRates>(
        optimizer, *schedule, device_, loop_.schedules_can_skip(),
        [loop = &loop_](optim::Scheduler& scheduler) { loop->advance_schedule(scheduler); }));
}

void StepCapture::begin_recording(StepRecord& record) {
    for (optim::Optimizer* optimizer : prepared_.optimizers()) {
        DeviceRates* const rates = device_rates_of(*optimizer);
        optimizer->push_options();
        if (rates == nullptr || !rates->prepare(1)) continue;
        rates->begin_capture();
        record.rates.emplace_back(rates, 0);
    }
    loop_.recorder.start(record);
}

void StepCapture::end_recording(StepRecord& record) {
    loop_.recorder.stop();
    for (const auto& [rates, steps] : record.rates) rates->end_capture();
    if (loop_.scaling) record.scaler = loop_.scaling->scaler().progress();
}

// --- replays

bool StepCapture::can_replay(const StepRecord& record) {
    return std::ranges::all_of(record.rates,
                               [](const auto& r) { return r.first->prepare(r.second); });
}

void StepCapture::before_replay(const StepRecord& record) {
    for (int i = 0; i < record.micro_batches; ++i) loop_.accumulation.begin_micro_batch();
    for (optim::Scheduler* scheduler : record.early_schedulers) loop_.step_schedule(*scheduler);
    for (optim::Optimizer* optimizer : prepared_.optimizers()) optimizer->push_options();
}

void StepCapture::after_replay(const StepRecord& record, const std::vector<Tensor>& parameters) {
    for (const Tensor& p : parameters) p.impl()->storage->bump_version();
    for (const nn::Module* model : prepared_.models())
        for (const auto& [name, buffer] : model->named_buffers())
            buffer.impl()->storage->bump_version();
    if (loop_.scaling) {
        loop_.scaling->forget_skips();
        loop_.scaling->scaler().set_progress(record.scaler);
    }
    for (const auto& [rates, steps] : record.rates) rates->note_replay(steps);
    for (optim::Scheduler* scheduler : record.schedulers) loop_.step_schedule(*scheduler);
}

}  // namespace axle::accel
