#include "optim/algorithms/adafactor.h"

#include <limits>

#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kAdafactorBuffers[] = {"row_var", "col_var", "variance"};

double epsilon_of(DType dtype) {
    if (dtype == f16) return 0x1p-10;
    if (dtype == bf16) return 0x1p-7;
    return dtype == f64 ? std::numeric_limits<double>::epsilon()
                        : double{std::numeric_limits<float>::epsilon()};
}

Tensor root_mean_square(const Tensor& x) { return sqrt(mean(x * x)); }

// Returns the average of squares in which the new squares have the weight `fraction`.
Tensor average(const Tensor& old, const Tensor& squares, const Tensor& fraction) {
    return old + fraction * (squares - old);
}

// Returns the average of squared gradients after the step. With 2 or more dimensions, approximates
// it from the averages of rows and columns. Writes the state.
Tensor variance_of(const Tensor& gradient, const ParamState& state, const TensorStep& step,
                   const AdafactorOptions& options, double eps) {
    const Tensor squares = gradient * gradient;
    const Tensor fraction = pow(step.t.to(gradient.dtype()), options.beta2_decay);
    const auto update = [&](std::size_t buffer, const Tensor& value) {
        const Tensor& old = state.buffers[buffer];
        return step.write(old, average(old, value, fraction));
    };
    if (gradient.dim() < 2) return update(2, squares);
    const Tensor rows = update(0, mean(squares, {-1}, true));
    const Tensor columns = update(1, mean(squares, {-2}, true));
    return rows * columns / clamp(mean(rows, {-2}, true), eps, std::nullopt);
}

}  // namespace

std::vector<NamedOption> AdafactorOptions::named() {
    return {{"lr", &lr}, {"beta2_decay", &beta2_decay},   {"eps", &eps},
            {"d", &d},   {"weight_decay", &weight_decay}, {"maximize", &maximize}};
}

void AdafactorOptions::check(const char* op) const {
    check_not_negative(op, {{"lr", lr},
                            {"eps[0]", eps.first.value_or(0)},
                            {"eps[1]", eps.second},
                            {"weight_decay", weight_decay}});
    if (!(beta2_decay <= 0))
        throw ValueError(str(op, ": beta2_decay must be 0 or less: ", beta2_decay));
    if (!(d >= 1)) throw ValueError(str(op, ": d must be 1 or more: ", d));
    refuse_stochastic_rounding(op, stochastic_rounding);
}

std::span<const char* const> Adafactor::buffer_names() const { return kAdafactorBuffers; }

std::optional<Shape> Adafactor::buffer_shape(const Tensor& param, std::size_t,
                                             std::size_t buffer) const {
    const bool is_matrix = param.dim() > 1;
    if (is_matrix == (buffer == 2)) return std::nullopt;
    Shape shape = param.shape();
    if (is_matrix) shape[shape.size() - (buffer == 0 ? 1 : 2)] = 1;
    return shape;
}

void Adafactor::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                           const Group& group) {
    const double eps = group.eps.first.value_or(epsilon_of(param.dtype()));
    const Tensor gradient = step.gradient(param, group.maximize);
    const Tensor values = param.detach().to(gradient.dtype());
    const Tensor variance = variance_of(gradient, state, step, group, eps);
    Tensor update = gradient * rsqrt(clamp(variance, eps * eps, std::nullopt));
    update = update / clamp(root_mean_square(update) / group.d, 1.0, std::nullopt);
    const Tensor relative = clamp(rsqrt(step.t.to(gradient.dtype())), std::nullopt, group.lr);
    const Tensor rate = relative * clamp(root_mean_square(values), group.eps.second, std::nullopt);
    step.write(param.detach(), values * (1 - group.lr * group.weight_decay) - rate * update);
}

}  // namespace axle::optim
