#include "core/ops/elementwise/promotion.h"
#include "core/ops/pointwise.h"

namespace axle {

Tensor neg(const Tensor& x) {
    if (x.defined() && x.dtype() == boolean)
        throw DTypeError("neg: not supported for booleans; use eq(x, 0) for logical not");
    return unary("neg", kernels::formula::Neg{}, x);
}
Tensor abs(const Tensor& x) { return unary("abs", kernels::formula::Abs{}, x); }
Tensor exp(const Tensor& x) { return unary("exp", kernels::formula::Exp{}, as_wide(x)); }
Tensor log(const Tensor& x) { return unary("log", kernels::formula::Log{}, as_wide(x)); }
Tensor sqrt(const Tensor& x) { return unary("sqrt", kernels::formula::Sqrt{}, as_floating(x)); }
Tensor rsqrt(const Tensor& x) { return unary("rsqrt", kernels::formula::Rsqrt{}, as_wide(x)); }
Tensor tanh(const Tensor& x) { return unary("tanh", kernels::formula::Tanh{}, as_floating(x)); }
Tensor sigmoid(const Tensor& x) {
    return unary("sigmoid", kernels::formula::Sigmoid{}, as_floating(x));
}
Tensor relu(const Tensor& x) { return unary("relu", kernels::formula::Relu{}, x); }
Tensor silu(const Tensor& x) { return unary("silu", kernels::formula::Silu{}, as_floating(x)); }

Tensor softsign(const Tensor& x) {
    return unary("softsign", kernels::formula::Softsign{}, as_floating(x));
}

Tensor gelu(const Tensor& x, Gelu form) {
    if (form == Gelu::tanh) return unary("gelu", kernels::formula::GeluTanh{}, as_floating(x));
    return unary("gelu", kernels::formula::Gelu{}, as_floating(x));
}

Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
    const kernels::formula::Clamp f = clamp_formula("clamp", low, high);
    const bool becomes_floating = x.defined() && !is_floating(x.dtype()) && has_fraction(f);
    return unary("clamp", f, becomes_floating ? to(x, f32) : x);
}

}  // namespace axle
