#include "core/autograd/autocast.h"
#include "core/ops/pointwise.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the result dtype of true division and powers: t if it is floating, otherwise f32.
DType floating(DType t) { return is_floating(t) ? t : f32; }

template <class F>
Tensor arithmetic(const char* op, F f, const Tensor& a, const Tensor& b) {
    check_device(op, {&a, &b});
    const DType common = promote(a, b);
    return binary_forward(op, f, a, b, common, common);
}

// Converts x to the dtype that results from promotion with the number b.
Tensor promoted(const Tensor& x, Scalar b) { return to(x, promote(x.dtype(), b)); }

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("add");
    // As in PyTorch, the sum of booleans is a boolean.
    if (a.defined() && b.defined() && a.dtype() == boolean && b.dtype() == boolean) {
        check_device("add", {&a, &b});
        broadcast_shapes("add", a.shape(), b.shape());
        return logical_or(a, b);
    }
    return record("add", arithmetic("add", kernels::formula::Add{}, a, b), {a, b},
                  [](const Grads& dy, Needs) -> Grads {
                      return {dy[0], dy[0]};
                  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("sub");
    check_device("sub", {&a, &b});
    if (a.dtype() == boolean && b.dtype() == boolean)
        throw DTypeError("sub: not supported for booleans; use ne for exclusive or");
    return record("sub", arithmetic("sub", kernels::formula::Sub{}, a, b), {a, b},
                  [](const Grads& dy, Needs needs) -> Grads {
                      return {dy[0], needs[1] ? neg(dy[0]) : Tensor()};
                  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("mul");
    return record(
        "mul", arithmetic("mul", kernels::formula::Mul{}, a, b), {a, b},
        [a = saved(a), b = saved(b)](const Grads& dy, Needs needs) -> Grads {
            return {needs[0] ? mul(dy[0], b) : Tensor(), needs[1] ? mul(dy[0], a) : Tensor()};
        });
}

Tensor div(const Tensor& a, const Tensor& b) {
    const profiler::OpScope scope("div");
    check_device("div", {&a, &b});
    const DType common = floating(promote(a, b));
    const Tensor y = binary_forward("div", kernels::formula::Div{}, a, b, common, common);
    return record("div", y, {a, b},
                  [y = saved(y), b = saved(b)](const Grads& dy, Needs needs) -> Grads {
                      const Tensor da = div(dy[0], b);
                      return {da, needs[1] ? neg(mul(da, y)) : Tensor()};
                  });
}

Tensor add(const Tensor& a, Scalar b) {
    check_device("add", {&a});
    if (needs_operand(b, a)) return add(a, scalar_operand(b, a));
    return unary("add", kernels::formula::AddScalar{b.to_double()}, promoted(a, b));
}
Tensor sub(const Tensor& a, Scalar b) {
    check_device("sub", {&a});
    if (needs_operand(b, a)) return sub(a, scalar_operand(b, a));
    return unary("sub", kernels::formula::AddScalar{-b.to_double()}, promoted(a, b));
}
Tensor mul(const Tensor& a, Scalar b) {
    check_device("mul", {&a});
    if (needs_operand(b, a)) return mul(a, scalar_operand(b, a));
    return unary("mul", kernels::formula::MulScalar{b.to_double()}, promoted(a, b));
}
Tensor div(const Tensor& a, Scalar b) {
    check_device("div", {&a});
    return unary("div", kernels::formula::MulScalar{1 / b.to_double()}, to(a, floating(a.dtype())));
}
Tensor sub(Scalar a, const Tensor& b) {
    const profiler::OpScope scope("sub");
    return add(neg(b), a);
}
Tensor div(Scalar a, const Tensor& b) {
    check_device("div", {&b});
    return unary("div", kernels::formula::DivideScalarBy{a.to_double()},
                 to(b, floating(b.dtype())));
}

Tensor pow(const Tensor& a, Scalar exponent) {
    check_device("pow", {&a});
    const kernels::formula::PowScalar power{exponent.to_double()};
    if (is_integral(a.dtype()) && exponent.is_integral()) {
        if (exponent.to_int64() < 0)
            throw ValueError(str("pow: integers cannot have negative exponents: ", a.dtype(), " ^ ",
                                 exponent.to_int64()));
        if (needs_operand(exponent, a)) return pow(a, scalar_operand(exponent, a));
        return unary("pow", power, promoted(a, exponent));
    }
    return unary("pow", power, autocast_to_f32(to(a, floating(a.dtype()))));
}

// The gradient rule is d a^b = b a^(b-1) da + a^b ln(a) db. The first term is 0 if b is 0, and the
// second term is 0 if a is 0 and b is at least 0.
Tensor pow(const Tensor& input, const Tensor& exponents) {
    const profiler::OpScope scope("pow");
    check_device("pow", {&input, &exponents});
    const Tensor a = autocast_to_f32(input), b = autocast_to_f32(exponents);
    const DType common = promote(a, b);
    const Tensor y = binary_forward("pow", kernels::formula::Pow{}, a, b, common, common);
    return record(
        "pow", y, {a, b},
        [y = saved(y), a = saved(a), b = saved(b)](const Grads& dy, Needs needs) -> Grads {
            Grads d(2);
            const Tensor base = a, exponent = b;
            if (needs[0]) {
                const Tensor factor = mul(exponent, pow(base, sub(exponent, 1)));
                const Tensor zero = zeros({}, {.dtype = factor.dtype(), .device = factor.device()});
                d[0] = mul(dy[0], where(eq(exponent, 0), zero, factor));
            }
            if (needs[1]) {
                const Tensor result = y;
                const Tensor zero = zeros({}, {.dtype = result.dtype(), .device = result.device()});
                const Tensor term = mul(result, log(to(base, result.dtype())));
                const Tensor is_zero = logical_and(eq(base, 0), ge(exponent, 0));
                d[1] = mul(dy[0], where(is_zero, zero, term));
            }
            return d;
        });
}

Tensor pow(Scalar base, const Tensor& b) {
    check_device("pow", {&b});
    return pow(scalar_operand(base, b), b);
}

namespace {

// Returns the maximum or minimum of a and b, where is_worse compares two tensors. The operand that
// is selected gets the gradient. If both are equal, each gets half of it; if one is NaN, both get
// all of it, as in PyTorch.
template <class F>
Tensor extremum(const char* op, F f, const Tensor& a, const Tensor& b,
                Tensor (*is_worse)(const Tensor&, const Tensor&)) {
    const profiler::OpScope scope(op);
    return record(op, arithmetic(op, f, a, b), {a, b},
                  [a = saved(a), b = saved(b), is_worse](const Grads& dy, Needs needs) -> Grads {
                      const Tensor left = a, right = b;
                      const Tensor share = sub(1, mul(to(eq(left, right), dy[0].dtype()), 0.5));
                      const Tensor shared = mul(dy[0], share);
                      Grads d(2);
                      if (needs[0]) d[0] = masked_fill(shared, is_worse(left, right), 0);
                      if (needs[1]) d[1] = masked_fill(shared, is_worse(right, left), 0);
                      return d;
                  });
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) {
    return extremum("maximum", kernels::formula::Maximum{}, a, b, lt);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
    return extremum("minimum", kernels::formula::Minimum{}, a, b, gt);
}

}  // namespace axle
