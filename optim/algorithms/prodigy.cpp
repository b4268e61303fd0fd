#include "optim/algorithms/prodigy.h"

#include <algorithm>
#include <cmath>

#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kProdigyBuffers[] = {"s", "p0", "exp_avg", "exp_avg_sq"};
constexpr std::size_t kS = 0, kP0 = 1, kMean = 2, kSquare = 3;

// Returns every slice_p-th element, in row-major order.
Tensor sliced(const Tensor& x, std::int64_t slice_p) {
    return slice(flatten(x), 0, 0, INT64_MAX, slice_p);
}

Tensor plus(const Tensor& total, const Tensor& x) {
    return total.defined() ? total + x.to(f64) : x.to(f64);
}

}  // namespace

std::vector<NamedOption> ProdigyOptions::named() {
    return {{"lr", &lr},
            {"betas", &betas},
            {"beta3", &beta3},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"d", &d},
            {"d0", &d0},
            {"d_max", &d_max},
            {"d_numerator", &d_numerator},
            {"d_coef", &d_coef},
            {"k", &k},
            {"growth_rate", &growth_rate},
            {"use_bias_correction", &use_bias_correction},
            {"decouple", &decouple},
            {"safeguard_warmup", &safeguard_warmup},
            {"slice_p", &slice_p}};
}

void ProdigyOptions::check(const char* op) const {
    const auto positive = [&](const char* option, double value) {
        if (!(value > 0)) throw ValueError(str(op, ": ", option, " must be above 0: ", value));
    };
    positive("eps", eps);
    positive("d0", d0);
    positive("slice_p", static_cast<double>(slice_p));
    check_betas(op, betas);
    check_not_negative(op, {{"lr", lr}, {"weight_decay", weight_decay}});
    refuse_stochastic_rounding(op, stochastic_rounding);
}

std::vector<NamedOption> Prodigy::options(std::size_t group) {
    Group& own = groups_[group];
    if (!own.d) own.d = own.d0;
    if (!own.d_max) own.d_max = own.d0;
    return own.named();
}

std::span<const char* const> Prodigy::buffer_names() const { return kProdigyBuffers; }

bool Prodigy::needs_buffer(std::size_t, std::size_t buffer) const {
    return buffer < std::size(kProdigyBuffers) && (buffer != kMean || groups_[0].betas[0] > 0);
}

std::optional<Shape> Prodigy::buffer_shape(const Tensor& param, std::size_t group,
                                           std::size_t buffer) const {
    if (buffer == kMean || buffer == kSquare) return param.shape();
    const std::int64_t every = groups_[group].slice_p;
    return Shape{(param.numel() + every - 1) / every};
}

void Prodigy::fill_buffer(Tensor& buffer, const Tensor& param, std::size_t group,
                          std::size_t index) const {
    if (index == kP0) buffer.copy_(sliced(param.detach(), groups_[group].slice_p));
}

double Prodigy::rate() const {
    double most = 0;
    for (const Group& group : groups_) most = std::max(most, group.lr);
    for (const Group& group : groups_)
        if (group.lr != most && group.lr != 0)
            throw ValueError(
                str("Prodigy: lr must be the same in all groups, or 0: ", group.lr, " and ", most));
    return most;
}

// Updates the averages of the parameters in `slots`, except in groups whose lr is 0. Returns the
// sums for the estimate of d.
Prodigy::Sums Prodigy::average(std::span<const kernels::Slot> slots,
                               const std::vector<Tensor>& params, const TensorStep& step, double d,
                               double dlr) const {
    const auto [beta1, beta2] = groups_[0].betas;
    const double beta3 = groups_[0].beta3.value_or(std::sqrt(beta2));
    Sums sums;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        const Group& group = groups_[static_cast<std::size_t>(slots[i].group)];
        const Tensor& param = params[i];
        if (param.numel() == 0 || group.lr == 0) continue;
        const ParamState& own = *state(param);
        Tensor gradient = step.gradient(param, false);
        const Tensor values = param.detach().to(gradient.dtype());
        if (!groups_[0].decouple) gradient = gradient + values * group.weight_decay;
        const Tensor part = sliced(gradient, group.slice_p);
        const Tensor moved = own.buffers[kP0] - sliced(values, group.slice_p);
        const double weight = d / group.d0;
        sums.numerator = plus(sums.numerator, sum(part * moved) * (weight * dlr));
        if (beta1 > 0)
            step.write(own.buffers[kMean],
                       own.buffers[kMean] * beta1 + gradient * (d * (1 - beta1)));
        step.write(own.buffers[kSquare],
                   addcmul(own.buffers[kSquare] * beta2, gradient, gradient, d * d * (1 - beta2)));
        const double share = group.safeguard_warmup ? weight * d : weight * dlr;
        const Tensor s = step.write(own.buffers[kS], own.buffers[kS] * beta3 + part * share);
        sums.denominator = plus(sums.denominator, sum(abs(s)));
    }
    return sums;
}

void Prodigy::update(Device device, std::span<const kernels::Slot> slots,
                     const kernels::StepScalars* scalars) {
    const TensorStep step(ProdigyOptions::kName, this->scalars());
    if (step_was_skipped()) return;
    const double lr = rate();
    Group& first = groups_[0];
    double d = first.d.value_or(first.d0), d_max = first.d_max.value_or(first.d0);
    const auto [beta1, beta2] = first.betas;
    const auto next = static_cast<double>(first.k + 1);
    const double correction = first.use_bias_correction ? std::sqrt(1 - std::pow(beta2, next)) /
                                                              (1 - std::pow(beta1, next))
                                                        : 1;
    dlr_ = d * lr * correction;
    const Sums sums = average(slots, take_updated(), step, d, dlr_);
    const double denominator = sums.denominator.defined() ? sums.denominator.item() : 0;
    if (denominator == 0) return;
    const double beta3 = first.beta3.value_or(std::sqrt(beta2));
    const double numerator = first.d_numerator * beta3 + sums.numerator.item();
    const double estimate = first.d_coef * numerator / denominator;
    if (d == first.d0) d = std::max(d, estimate);
    d_max = std::max(d_max, estimate);
    d = std::min(d_max, d * first.growth_rate);
    for (Group& group : groups_) {
        group.d_numerator = numerator;
        group.d = d;
        group.d_max = d_max;
        ++group.k;
    }
    TensorOptimizer::update(device, slots, scalars);
}

void Prodigy::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                         const Group& group) {
    Tensor gradient = step.gradient(param, false);
    Tensor values = param.detach().to(gradient.dtype());
    const bool decouple = groups_[0].decouple;
    if (!decouple) gradient = gradient + values * group.weight_decay;
    const bool averages = groups_[0].betas[0] > 0;
    const Tensor direction = averages ? state.buffers[kMean] : gradient * *group.d;
    if (decouple) values = values * (1 - group.weight_decay * dlr_);
    const Tensor size = sqrt(state.buffers[kSquare]) + *group.d * group.eps;
    step.write(param.detach(), addcdiv(values, direction, size, -dlr_));
}

}  // namespace axle::optim
