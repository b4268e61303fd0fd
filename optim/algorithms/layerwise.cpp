#include "optim/algorithms/layerwise.h"

#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kLambBuffers[] = {"exp_avg", "exp_avg_sq"};
constexpr const char* kLarsBuffers[] = {"momentum_buffer"};

Tensor norm_of(const Tensor& x) { return sqrt(sum(x * x)); }

// Returns `ratio` where both norms are positive, and 1 elsewhere. All tensors are 0-d.
Tensor if_positive(const Tensor& norm, const Tensor& other, const Tensor& ratio) {
    return where(minimum(norm, other) > 0.0, ratio, 1.0);
}

}  // namespace

std::vector<NamedOption> LAMBOptions::named() {
    return {{"lr", &lr},
            {"betas", &betas},
            {"eps", &eps},
            {"weight_decay", &weight_decay},
            {"maximize", &maximize}};
}

void LAMBOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
    check_betas(op, betas);
    refuse_stochastic_rounding(op, stochastic_rounding);
}

std::span<const char* const> LAMB::buffer_names() const { return kLambBuffers; }

void LAMB::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                      const Group& group) {
    const Tensor gradient = step.gradient(param, group.maximize);
    const auto [beta1, beta2] = group.betas;
    const Tensor &old = state.buffers[0], &old_square = state.buffers[1];
    const Tensor mean = step.write(old, lerp(old, gradient, 1 - beta1));
    const Tensor square = step.write(old_square, lerp(old_square, gradient * gradient, 1 - beta2));
    const Tensor t = step.t.to(f64);
    const auto corrected = [&](const Tensor& average, double beta) {
        return average / (1.0 - pow(beta, t)).to(average.dtype());
    };
    const Tensor values = param.detach().to(gradient.dtype());
    const Tensor update = corrected(mean, beta1) / (sqrt(corrected(square, beta2)) + group.eps) +
                          values * group.weight_decay;
    const Tensor norm = norm_of(values), update_norm = norm_of(update);
    const Tensor trust = if_positive(norm, update_norm, norm / update_norm);
    step.write(param.detach(), values - update * (trust * group.lr));
}

std::vector<NamedOption> LARSOptions::named() {
    return {{"lr", &lr},
            {"momentum", &momentum},
            {"weight_decay", &weight_decay},
            {"trust_coefficient", &trust_coefficient},
            {"eps", &eps},
            {"maximize", &maximize}};
}

void LARSOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr},
                            {"momentum", momentum},
                            {"weight_decay", weight_decay},
                            {"trust_coefficient", trust_coefficient},
                            {"eps", eps}});
    refuse_stochastic_rounding(op, stochastic_rounding);
}

std::span<const char* const> LARS::buffer_names() const { return kLarsBuffers; }

void LARS::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                      const Group& group) {
    const Tensor gradient = step.gradient(param, group.maximize);
    const Tensor values = param.detach().to(gradient.dtype());
    const Tensor norm = norm_of(values), gradient_norm = norm_of(gradient);
    const Tensor rate = if_positive(
        norm, gradient_norm,
        norm * group.trust_coefficient / (gradient_norm + norm * group.weight_decay + group.eps));
    const Tensor decayed = gradient + values * group.weight_decay;
    const Tensor& old = state.buffers[0];
    const Tensor velocity = step.write(old, old * group.momentum + decayed * (rate * group.lr));
    step.write(param.detach(), values - velocity);
}

}  // namespace axle::optim
