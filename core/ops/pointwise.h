// Helpers of the pointwise ops: numbers as operands, broadcasting, and gradient rules of unary
// formulas.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/pointwise.h"

namespace axle {

// Returns the number as a 0-d tensor of the dtype promote(x.dtype(), value), for use as an operand
// of a binary op with x. The tensor broadcasts.
inline Tensor scalar_operand(Scalar value, const Tensor& x) {
    return full({}, value, {.dtype = promote(x.dtype(), value), .device = x.device()});
}

// Returns whether the number must be passed as a scalar_operand(), because the parameter of a unary
// formula is a double, which would round the number.
inline bool needs_operand(Scalar value, const Tensor& x) {
    return is_integral(x.dtype()) && !value.fits_double();
}

// Returns the formula of clamp. Throws ValueError if neither bound is given.
inline kernels::formula::Clamp clamp_formula(const char* op, std::optional<double> low,
                                             std::optional<double> high) {
    if (!low && !high)
        throw ValueError(str(op, ": at least one of low and high must be given: neither is given"));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {low.value_or(-kInfinity), high.value_or(kInfinity)};
}

// Returns whether a bound is not an integer. The result is then floating.
inline bool has_fraction(const kernels::formula::Clamp& f) {
    return std::floor(f.low) != f.low || std::floor(f.high) != f.high;
}

// Returns f(a, b), broadcast and computed in the dtype `common`. The result has the dtype `result`.
template <class F>
Tensor binary_forward(const char* op, F f, const Tensor& a, const Tensor& b, DType common,
                      DType result) {
    const Device device = check_device(op, {&a, &b});
    check_compute(op, a, "a");
    check_compute(op, b, "b");
    const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
    const NoGrad no_grad;
    const Tensor left = expand(to(a, common), shape);
    const Tensor right = expand(to(b, common), shape);
    Tensor y = Tensor::empty(shape, {.dtype = result, .device = device});
    launch(device, [&](auto& on) { kernels::binary(on, f, left.view(), right.view(), y.view()); });
    return y;
}

template <class F, class... Others>
constexpr bool kIsOneOf = (std::is_same_v<F, Others> || ...);

// Whether the formula F is piecewise linear, so that its curve is 0. Add new formulas of this kind
// to the list.
template <class F>
constexpr bool kIsPiecewiseLinear =
    std::is_base_of_v<kernels::formula::Steps, F> ||
    kIsOneOf<F, kernels::formula::Neg, kernels::formula::Abs, kernels::formula::Relu,
             kernels::formula::AddScalar, kernels::formula::MulScalar, kernels::formula::Clamp,
             kernels::formula::LeakyRelu, kernels::formula::Hardsigmoid, kernels::formula::Frac,
             kernels::formula::Softshrink>;

// Returns dx = dy f'(v), where v is the input of f, or its output if F::kSavesOutput is true. The
// gradient of v can be differentiated again only if f is piecewise linear.
template <class F>
Tensor slope(const char* op, F f, const Tensor& dy, const Tensor& v) {
    Tensor dx = empty_like(v);
    launch(v.device(),
           [&](auto& on) { kernels::unary_slope(on, f, dy.view(), v.view(), dx.view()); });
    return record(op, dx, {dy, v},
                  [op, f, dy = saved(dy), v = saved(v)](const Grads& g, Needs needs) -> Grads {
                      const Tensor at = v.get();
                      Grads result(2);
                      if (needs[0]) result[0] = slope(op, f, g[0], at);
                      if (needs[1] && kIsPiecewiseLinear<F>) {
                          result[1] = zeros_like(at);
                      } else if (needs[1]) {
                          if (grad_enabled()) refuse_third_derivative(op);
                          Tensor curve = empty_like(at);
                          launch(at.device(), [&](auto& on) {
                              kernels::unary_curve(on, f, std::as_const(at).view(), curve.view());
                          });
                          result[1] = mul(mul(g[0], dy), curve);
                      }
                      return result;
                  });
}

// Returns f(x) and records its gradient rule.
template <class F>
Tensor unary(const char* op, F f, const Tensor& x) {
    const profiler::OpScope scope(op);
    check_device(op, {&x});
    check_compute(op, x);
    Tensor y = empty_like(x);
    launch(x.device(), [&](auto& on) { kernels::unary(on, f, x.view(), y.view()); });
    const Tensor& kept = F::kSavesOutput ? y : x;
    return record(op, y, {x}, [op, f, v = saved(kept)](const Grads& dy, Needs) -> Grads {
        return {slope(op, f, dy[0], v)};
    });
}

}  // namespace axle
