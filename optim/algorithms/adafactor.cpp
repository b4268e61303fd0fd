#include "optim/algorithms/adafactor.h"

#include <limits>

#include "core/graph.h"
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

// The values of one step of a parameter, as 0-d tensors on its device.
struct AdafactorStep {
    Tensor skipped;  // whether the step is skipped; undefined without scalars
    Tensor factor;   // the factor of the gradient; undefined without scalars
    Tensor t;        // the number of the step

    // Copies a value to a tensor, unless the step is skipped. Returns the value.
    Tensor write(Tensor target, const Tensor& value) const {
        target.copy_(skipped.defined() ? where(skipped, target, value.to(target.dtype())) : value);
        return value;
    }
};

// Returns the average of squares in which the new squares have the weight `fraction`.
Tensor average(const Tensor& old, const Tensor& squares, const Tensor& fraction) {
    return old + fraction * (squares - old);
}

// Returns the average of squared gradients after the step. Writes the state.
Tensor variance_of(const Tensor& gradient, const ParamState& state, const AdafactorStep& step,
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

void step_adafactor(const Tensor& param, const ParamState& state, const AdafactorStep& step,
                    const AdafactorOptions& options) {
    const DType wide = param.dtype() == f64 ? f64 : f32;
    const double eps = options.eps.first.value_or(epsilon_of(param.dtype()));
    Tensor gradient = param.grad().detach().to(wide);
    if (step.factor.defined()) gradient = gradient * step.factor.to(wide);
    if (options.maximize) gradient = gradient * -1.0;
    const Tensor values = param.detach().to(wide);
    const Tensor variance = variance_of(gradient, state, step, options, eps);
    Tensor update = gradient * rsqrt(clamp(variance, eps * eps, std::nullopt));
    update = update / clamp(root_mean_square(update) / options.d, 1.0, std::nullopt);
    const Tensor relative = clamp(rsqrt(step.t.to(wide)), std::nullopt, options.lr);
    const Tensor rate =
        relative * clamp(root_mean_square(values), options.eps.second, std::nullopt);
    step.write(param.detach(), values * (1 - options.lr * options.weight_decay) - rate * update);
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
    if (stochastic_rounding)
        throw ValueError(str(op,
                             ": stochastic_rounding must be false, because this optimizer "
                             "rounds to nearest: true"));
}

Adafactor::Adafactor(std::vector<Tensor> params, AdafactorOptions options) {
    add_params(std::move(params), options);
}
Adafactor::Adafactor(std::vector<Group> groups) { add_groups(std::move(groups)); }

std::span<const char* const> Adafactor::buffer_names() const { return kAdafactorBuffers; }

std::optional<Shape> Adafactor::buffer_shape(const Tensor& param, std::size_t buffer) const {
    const bool is_matrix = param.dim() > 1;
    if (is_matrix == (buffer == 2)) return std::nullopt;
    Shape shape = param.shape();
    if (is_matrix) shape[shape.size() - (buffer == 0 ? 1 : 2)] = 1;
    return shape;
}

void Adafactor::check_divided() const {
    throw UsageError(
        "Adafactor: parameters must not be sharded or divided among processes, because Adafactor "
        "needs the rows and columns of whole matrices; use AdamW");
}

void Adafactor::update(Device, std::span<const kernels::Slot> slots, const kernels::StepScalars*) {
    if (is_capturing())
        throw UsageError("Adafactor: steps cannot be captured in a graph; use AdamW");
    AdafactorStep step;
    if (scalars().defined()) {
        step.skipped = select(scalars(), 0, 2) != 0.0;
        step.factor = select(scalars(), 0, 0) * select(scalars(), 0, 1);
    }
    const std::vector<Tensor>& params = take_updated();
    for (std::size_t i = 0; i < slots.size(); ++i) {
        const Tensor& param = params[i];
        if (param.numel() == 0) continue;
        const ParamState& own = *state(param);
        step.t = own.step + 1.0;
        step_adafactor(param, own, step, groups_[static_cast<std::size_t>(slots[i].group)]);
        step.write(own.step, step.t);
    }
}

}  // namespace axle::optim
