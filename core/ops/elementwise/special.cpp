#include <cmath>

#include "core/ops/elementwise/promotion.h"
#include "core/ops/pointwise.h"

namespace axle {
namespace {

namespace formula = kernels::formula;

// Throws ValueError if an integer would be divided by 0 on the CPU. GPUs compute 0 instead, because
// reading the divisor would wait for the GPU.
void check_divisor(const char* op, const Tensor& a, const Tensor& b, DType common) {
    if (is_floating(common) || !b.device().is_cpu() || a.numel() == 0) return;
    if (!all(b).item<bool>())
        throw ValueError(str(op, ": integers cannot be divided by 0: the divisor of shape ",
                             b.shape(), " contains 0"));
}

// Returns f(a, b), the remainder of a / b, and records its gradient rule da - q db. q = quotient(a,
// b) is the integer quotient.
template <class F>
Tensor rest(const char* op, F f, Tensor (*quotient)(const Tensor&, const Tensor&), const Tensor& a,
            const Tensor& b) {
    const profiler::OpScope scope(op);
    check_device(op, {&a, &b});
    const DType common = promote(a, b);
    check_divisor(op, a, b, common);
    return record(op, binary_forward(op, f, a, b, common, common), {a, b},
                  [quotient, a = saved(a), b = saved(b)](const Grads& dy, Needs needs) -> Grads {
                      return {dy[0], needs[1] ? neg(mul(dy[0], quotient(a, b))) : Tensor()};
                  });
}

}  // namespace

Tensor floor(const Tensor& x) { return unary("floor", formula::Floor{}, x); }
Tensor ceil(const Tensor& x) { return unary("ceil", formula::Ceil{}, x); }
Tensor round(const Tensor& x) { return unary("round", formula::Round{}, x); }
Tensor trunc(const Tensor& x) { return unary("trunc", formula::Trunc{}, x); }
Tensor sign(const Tensor& x) { return unary("sign", formula::Sign{}, x); }
Tensor frac(const Tensor& x) { return unary("frac", formula::Frac{}, as_floating(x)); }

Tensor sin(const Tensor& x) { return unary("sin", formula::Sin{}, as_floating(x)); }
Tensor cos(const Tensor& x) { return unary("cos", formula::Cos{}, as_floating(x)); }
Tensor tan(const Tensor& x) { return unary("tan", formula::Tan{}, as_wide(x)); }
Tensor asin(const Tensor& x) { return unary("asin", formula::Asin{}, as_wide(x)); }
Tensor acos(const Tensor& x) { return unary("acos", formula::Acos{}, as_wide(x)); }
Tensor atan(const Tensor& x) { return unary("atan", formula::Atan{}, as_floating(x)); }
Tensor sinh(const Tensor& x) { return unary("sinh", formula::Sinh{}, as_wide(x)); }
Tensor cosh(const Tensor& x) { return unary("cosh", formula::Cosh{}, as_wide(x)); }
Tensor asinh(const Tensor& x) { return unary("asinh", formula::Asinh{}, as_floating(x)); }
Tensor acosh(const Tensor& x) { return unary("acosh", formula::Acosh{}, as_floating(x)); }
Tensor atanh(const Tensor& x) { return unary("atanh", formula::Atanh{}, as_floating(x)); }
Tensor exp2(const Tensor& x) { return unary("exp2", formula::Exp2{}, as_floating(x)); }
Tensor expm1(const Tensor& x) { return unary("expm1", formula::Expm1{}, as_wide(x)); }
Tensor log2(const Tensor& x) { return unary("log2", formula::Log2{}, as_wide(x)); }
Tensor log10(const Tensor& x) { return unary("log10", formula::Log10{}, as_wide(x)); }
Tensor log1p(const Tensor& x) { return unary("log1p", formula::Log1p{}, as_wide(x)); }
Tensor erf(const Tensor& x) { return unary("erf", formula::Erf{}, as_floating(x)); }
Tensor erfc(const Tensor& x) { return unary("erfc", formula::Erfc{}, as_floating(x)); }
Tensor erfinv(const Tensor& x) { return unary("erfinv", formula::Erfinv{}, as_wide(x)); }
Tensor lgamma(const Tensor& x) { return unary("lgamma", formula::Lgamma{}, as_floating(x)); }
Tensor digamma(const Tensor& x) { return unary("digamma", formula::Digamma{}, as_floating(x)); }

Tensor square(const Tensor& x) {
    check_device("square", {&x});
    return unary("square", formula::PowScalar{2}, x.dtype() == boolean ? to(x, i64) : x);
}
Tensor reciprocal(const Tensor& x) {
    return unary("reciprocal", formula::DivideScalarBy{1}, as_wide(x));
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("floor_divide");
    check_device("floor_divide", {&a, &b});
    const DType common = promote(a, b);
    check_divisor("floor_divide", a, b, common);
    return binary_forward("floor_divide", formula::FloorDivide{}, a, b, common, common);
}
Tensor fmod(const Tensor& a, const Tensor& b) {
    const auto quotient = [](const Tensor& x, const Tensor& y) { return trunc(div(x, y)); };
    return rest("fmod", formula::Fmod{}, quotient, a, b);
}
Tensor remainder(const Tensor& a, const Tensor& b) {
    return rest("remainder", formula::Remainder{}, floor_divide, a, b);
}

Tensor floor_divide(const Tensor& a, Scalar b) {
    check_device("floor_divide", {&a});
    return floor_divide(a, scalar_operand(b, a));
}
Tensor fmod(const Tensor& a, Scalar b) {
    check_device("fmod", {&a});
    return fmod(a, scalar_operand(b, a));
}
Tensor remainder(const Tensor& a, Scalar b) {
    check_device("remainder", {&a});
    return remainder(a, scalar_operand(b, a));
}

Tensor atan2(const Tensor& y, const Tensor& x) {
    const profiler::OpScope scope("atan2");
    check_device("atan2", {&y, &x});
    const DType common = is_floating(promote(y, x)) ? promote(y, x) : f32;
    return record("atan2", binary_forward("atan2", formula::Atan2{}, y, x, common, common), {y, x},
                  [y = saved(y), x = saved(x)](const Grads& d, Needs needs) -> Grads {
                      // The gradient at the origin is 0, as in PyTorch.
                      const Tensor squares = add(square(y), square(x));
                      const Tensor scaled = div(d[0], masked_fill(squares, eq(squares, 0), 1));
                      return {needs[0] ? mul(scaled, x) : Tensor(),
                              needs[1] ? neg(mul(scaled, y)) : Tensor()};
                  });
}

Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight) {
    const profiler::OpScope scope("lerp");
    check_device("lerp", {&start, &end, &weight});
    broadcast_shapes("lerp", broadcast_shapes("lerp", start.shape(), end.shape()), weight.shape());
    return add(start, mul(weight, sub(end, start)));
}
Tensor lerp(const Tensor& start, const Tensor& end, double weight) {
    const profiler::OpScope scope("lerp");
    check_device("lerp", {&start, &end});
    broadcast_shapes("lerp", start.shape(), end.shape());
    return add(start, mul(sub(end, start), weight));
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
    const profiler::OpScope scope("addcmul");
    check_device("addcmul", {&x, &a, &b});
    broadcast_shapes("addcmul", broadcast_shapes("addcmul", a.shape(), b.shape()), x.shape());
    const Tensor product = mul(a, b);
    // Integers multiplied by an integral value stay integers.
    if (!is_floating(product.dtype()) && value == std::trunc(value))
        return add(x, mul(product, static_cast<std::int64_t>(value)));
    return add(x, mul(product, value));
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
    const profiler::OpScope scope("addcdiv");
    check_device("addcdiv", {&x, &a, &b});
    broadcast_shapes("addcdiv", broadcast_shapes("addcdiv", a.shape(), b.shape()), x.shape());
    return add(x, mul(div(a, b), value));
}

}  // namespace axle
