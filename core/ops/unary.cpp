#include "core/autograd/autocast.h"
#include "core/ops/pointwise.h"

namespace axle {
namespace {

// Returns x, converted to f32 if its dtype is integral, as in PyTorch.
Tensor floating(const Tensor& x) { return x.defined() && is_integral(x.dtype()) ? to(x, f32) : x; }

// Returns x, converted to f32 if its dtype is integral, or if it is half precision and autocast is
// active. Used for functions that grow or shrink fast.
Tensor wide(const Tensor& x) { return autocast_to_f32(floating(x)); }

}  // namespace

Tensor neg(const Tensor& x) {
    if (x.defined() && x.dtype() == boolean)
        throw DTypeError("neg: not supported for booleans; use eq(x, 0) for logical not");
    return unary("neg", kernels::formula::Neg{}, x);
}
Tensor abs(const Tensor& x) { return unary("abs", kernels::formula::Abs{}, x); }
Tensor exp(const Tensor& x) { return unary("exp", kernels::formula::Exp{}, wide(x)); }
Tensor log(const Tensor& x) { return unary("log", kernels::formula::Log{}, wide(x)); }
Tensor sqrt(const Tensor& x) { return unary("sqrt", kernels::formula::Sqrt{}, floating(x)); }
Tensor rsqrt(const Tensor& x) { return unary("rsqrt", kernels::formula::Rsqrt{}, wide(x)); }
Tensor tanh(const Tensor& x) { return unary("tanh", kernels::formula::Tanh{}, floating(x)); }
Tensor sigmoid(const Tensor& x) {
    return unary("sigmoid", kernels::formula::Sigmoid{}, floating(x));
}
Tensor relu(const Tensor& x) { return unary("relu", kernels::formula::Relu{}, x); }
Tensor silu(const Tensor& x) { return unary("silu", kernels::formula::Silu{}, floating(x)); }

Tensor softsign(const Tensor& x) {
    return unary("softsign", kernels::formula::Softsign{}, floating(x));
}

Tensor gelu(const Tensor& x, Gelu form) {
    if (form == Gelu::tanh) return unary("gelu", kernels::formula::GeluTanh{}, floating(x));
    return unary("gelu", kernels::formula::Gelu{}, floating(x));
}

Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
    const kernels::formula::Clamp f = clamp_formula("clamp", low, high);
    const bool becomes_floating = x.defined() && !is_floating(x.dtype()) && has_fraction(f);
    return unary("clamp", f, becomes_floating ? to(x, f32) : x);
}

}  // namespace axle
