#include "optim/algorithms/sparse_adam.h"

#include "core/ops.h"
#include "optim/rule_optimizer_impl.h"

namespace axle::optim {
namespace {

constexpr const char* kSparseBuffers[] = {"exp_avg", "exp_avg_sq"};

// Returns the positions (i64) of the rows whose gradient is not all zero.
Tensor used_rows(const Tensor& gradient) {
    const Tensor used = gradient != 0.0;
    return flatten(nonzero(used.dim() == 1 ? used : any(flatten(used, 1), 1)));
}

}  // namespace

std::vector<NamedOption> SparseAdamOptions::named() {
    return {{"lr", &lr}, {"betas", &betas}, {"eps", &eps}, {"maximize", &maximize}};
}

void SparseAdamOptions::check(const char* op) const {
    if (!(lr > 0)) throw ValueError(str(op, ": lr must be above 0: ", lr));
    if (!(eps > 0)) throw ValueError(str(op, ": eps must be above 0: ", eps));
    check_betas(op, betas);
    refuse_stochastic_rounding(op, stochastic_rounding);
}

std::span<const char* const> SparseAdam::buffer_names() const { return kSparseBuffers; }

void SparseAdam::step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                            const Group& group) {
    // A 0-d parameter is one row.
    const auto in_rows = [](const Tensor& x) { return x.dim() == 0 ? view(x, {1}) : x; };
    const Tensor all = in_rows(step.gradient(param, group.maximize));
    const Tensor rows = used_rows(all);
    if (rows.numel() == 0) return;
    Tensor values = in_rows(param.detach()), mean = in_rows(state.buffers[0]),
           square = in_rows(state.buffers[1]);
    const auto [beta1, beta2] = group.betas;
    const Tensor gradient = index_select(all, 0, rows);
    // Writes new values to the rows, unless the step is skipped. Returns the new values.
    const auto write = [&](Tensor& target, const Tensor& value) {
        const Tensor kept =
            step.skipped.defined()
                ? where(step.skipped, index_select(target, 0, rows), value.to(target.dtype()))
                : value;
        target.index_put_({rows}, kept);
        return value;
    };
    const Tensor m = write(mean, lerp(index_select(mean, 0, rows), gradient, 1 - beta1));
    const Tensor v =
        write(square, lerp(index_select(square, 0, rows), gradient * gradient, 1 - beta2));
    const Tensor t = step.t.to(f64);
    const Tensor size = sqrt(1.0 - pow(beta2, t)) / (1.0 - pow(beta1, t)) * group.lr;
    const Tensor old = index_select(values, 0, rows).to(gradient.dtype());
    write(values, old - m / (sqrt(v) + group.eps) * size.to(gradient.dtype()));
}

}  // namespace axle::optim
