#include "optim/tensor_optimizer.h"

#include "core/cuda/graph.h"
#include "core/ops.h"

namespace axle::optim {

TensorStep::TensorStep(const char* optimizer, const Tensor& scalars) {
    if (is_capturing())
        throw UsageError(str(optimizer, ": steps cannot be captured in a graph; use AdamW"));
    if (!scalars.defined()) return;
    skipped = select(scalars, 0, 2) != 0.0;
    factor = select(scalars, 0, 0) * select(scalars, 0, 1);
}

void TensorStep::count(const Tensor& step) { t = step + 1.0; }

Tensor TensorStep::gradient(const Tensor& param, bool maximize) const {
    const DType wide = param.dtype() == f64 ? f64 : f32;
    Tensor gradient = param.grad().detach().to(wide);
    if (factor.defined()) gradient = gradient * factor.to(wide);
    return maximize ? gradient * -1.0 : gradient;
}

Tensor TensorStep::write(Tensor target, const Tensor& value) const {
    target.copy_(skipped.defined() ? where(skipped, target, value.to(target.dtype())) : value);
    return value;
}

void refuse_divided(const char* optimizer) {
    throw UsageError(str(optimizer,
                         ": parameters must not be sharded or divided among processes, because ",
                         optimizer, " needs whole parameters; use AdamW"));
}

void refuse_stochastic_rounding(const char* op, bool stochastic_rounding) {
    if (stochastic_rounding)
        throw ValueError(str(op,
                             ": stochastic_rounding must be false, but it is true; this optimizer "
                             "rounds to nearest"));
}

}  // namespace axle::optim
