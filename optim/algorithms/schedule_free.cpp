#include "optim/algorithms/schedule_free.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kBuffers[] = {"z", "exp_avg_sq"};

// Returns the weight of the last counted step, before it is divided by the sum of all weights.
double step_weight(const auto& o) {
    return std::pow(static_cast<double>(o.k), o.r) * std::pow(o.lr_max, o.weight_lr_power);
}

// Counts a step of the group, and updates its scheduled rate and its sum of weights.
void count_step(auto& o) {
    ++o.k;
    const double warmup =
        o.k <= o.warmup_steps ? static_cast<double>(o.k) / static_cast<double>(o.warmup_steps) : 1;
    o.scheduled_lr = o.lr * warmup;
    o.lr_max = std::max(o.lr_max, o.scheduled_lr);
    o.weight_sum += step_weight(o);
}

void check_common(const char* op, const auto& o, const char* name_of_momentum) {
    check_not_negative(op, {{"lr", o.lr},
                            {"weight_decay", o.weight_decay},
                            {"warmup_steps", static_cast<double>(o.warmup_steps)},
                            {"r", o.r},
                            {"weight_lr_power", o.weight_lr_power}});
    if (!(o.momentum() > 0 && o.momentum() < 1))
        throw ValueError(str(op, ": ", name_of_momentum, " must be in (0, 1): ", o.momentum()));
    refuse_stochastic_rounding(op, o.stochastic_rounding);
}

// Returns z, which is equal to the parameter before the first step.
Tensor z_of(const ParamState& state, const Tensor& values, const TensorStep& step) {
    return where(step.t == 1.0, values, state.buffers[0]);
}

}  // namespace

template <class Options>
void ScheduleFree<Options>::update(Device device, std::span<const kernels::Slot> slots,
                                   const kernels::StepScalars* scalars) {
    for (std::size_t i = 0; i < this->groups_.size(); ++i)
        if (!this->groups_[i].train_mode)
            throw UsageError(str(Options::kName, ": step: group ", i,
                                 " is in evaluation mode; call train() before step()"));
    if (this->step_was_skipped()) return;
    for (Group& group : this->groups_) count_step(group);
    TensorOptimizer<Options>::update(device, slots, scalars);
}

template <class Options>
void ScheduleFree<Options>::move(const Tensor& param, const Tensor& values, const Tensor& z,
                                 const Tensor& gradient, const TensorStep& step,
                                 const Group& group) const {
    const double weight = group.weight_sum == 0 ? 0 : step_weight(group) / group.weight_sum;
    const double rate = group.scheduled_lr;
    step.write(param.detach(),
               lerp(values, z, weight) + gradient * (rate * (group.momentum() * (1 - weight) - 1)));
    step.write(this->state(param)->buffers[0], z - gradient * rate);
}

template <class Options>
void ScheduleFree<Options>::set_mode(bool train) {
    this->before_access();
    const NoGrad no_grad;
    for (Group& group : this->groups_) {
        if (group.train_mode == train) continue;
        const double beta = group.momentum();
        for (const Tensor& param : group.params) {
            const ParamState* state = this->state(param);
            if (state == nullptr || state->step.item() == 0) continue;
            const Tensor& z = state->buffers[0];
            param.detach().copy_(
                lerp(param.detach().to(z.dtype()), z, train ? 1 - beta : 1 - 1 / beta));
        }
        group.train_mode = train;
    }
}

template class ScheduleFree<AdamWScheduleFreeOptions>;
template class ScheduleFree<SGDScheduleFreeOptions>;

std::vector<NamedOption> AdamWScheduleFreeOptions::named() {
    return {{"lr", &lr},
            {"betas", &betas},
            {"eps", &eps},
            {"r", &r},
            {"k", &k},
            {"warmup_steps", &warmup_steps},
            {"train_mode", &train_mode},
            {"weight_sum", &weight_sum},
            {"lr_max", &lr_max},
            {"scheduled_lr", &scheduled_lr},
            {"weight_lr_power", &weight_lr_power},
            {"weight_decay", &weight_decay}};
}

void AdamWScheduleFreeOptions::check(const char* op) const {
    check_common(op, *this, "betas[0]");
    check_not_negative(op, {{"eps", eps}});
    check_betas(op, betas);
}

std::span<const char* const> AdamWScheduleFree::buffer_names() const { return kBuffers; }

void AdamWScheduleFree::step_param(const Tensor& param, const ParamState& state,
                                   const TensorStep& step, const Group& group) {
    const Tensor gradient = step.gradient(param, false);
    const Tensor values = param.detach().to(gradient.dtype());
    const Tensor z = z_of(state, values, step);
    const Tensor& old = state.buffers[1];
    const Tensor square = step.write(old, lerp(old, gradient * gradient, 1 - group.betas[1]));
    const double correction = 1 - std::pow(group.betas[1], static_cast<double>(group.k));
    const Tensor normalized = gradient / (sqrt(square / correction) + group.eps);
    move(param, values, z, normalized + values * group.weight_decay, step, group);
}

std::vector<NamedOption> SGDScheduleFreeOptions::named() {
    return {{"lr", &lr},
            {"momentum", &beta},
            {"r", &r},
            {"k", &k},
            {"warmup_steps", &warmup_steps},
            {"train_mode", &train_mode},
            {"weight_sum", &weight_sum},
            {"lr_max", &lr_max},
            {"scheduled_lr", &scheduled_lr},
            {"weight_lr_power", &weight_lr_power},
            {"weight_decay", &weight_decay}};
}

void SGDScheduleFreeOptions::check(const char* op) const { check_common(op, *this, "beta"); }

std::span<const char* const> SGDScheduleFree::buffer_names() const {
    return std::span(kBuffers).first(1);
}

void SGDScheduleFree::step_param(const Tensor& param, const ParamState& state,
                                 const TensorStep& step, const Group& group) {
    const Tensor gradient = step.gradient(param, false);
    const Tensor values = param.detach().to(gradient.dtype());
    move(param, values, z_of(state, values, step), gradient + values * group.weight_decay, step,
         group);
}

}  // namespace axle::optim
