// Elementwise ops that are not in core/ops.h: rounding, elementary and special functions of one to
// three operands, comparisons with a tolerance, logic, bits, and activations. core/ops.h includes
// this header and states the rules of all ops.
//
// Elementary and special functions except square(), and most activations, convert integers to f32.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"

namespace axle {

// --- rounding (elementwise/special.cpp). floor, ceil, round and trunc return integers unchanged.
// All functions except frac have a gradient of zero.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  // halfway numbers become even
Tensor trunc(const Tensor& x);
Tensor frac(const Tensor& x);  // x - trunc(x); f32 for integers
Tensor sign(const Tensor& x);  // -1, 0 or 1, also for integers; 0 for NaN

// --- elementary and special functions (elementwise/special.cpp)
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);  // e^x - 1, accurate for small x
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);  // ln(1 + x), accurate for small x
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);     // 1 - erf(x), accurate for large x
Tensor erfinv(const Tensor& x);   // the y with erf(y) = x
Tensor lgamma(const Tensor& x);   // ln |gamma(x)|
Tensor digamma(const Tensor& x);  // the derivative of lgamma
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);

// --- two or three operands, which broadcast (elementwise/special.cpp)
// Returns a / b, rounded down. Has no gradient. Integers divided by 0 throw ValueError on the CPU
// and give 0 on a GPU.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Scalar b);
// Return the remainder of a / b, which has the sign of a (fmod) or of b (remainder). Integers
// divided by 0 throw ValueError on the CPU and give 0 on a GPU.
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, Scalar b);
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Scalar b);
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& a, Scalar b) { return remainder(a, b); }
Tensor atan2(const Tensor& y, const Tensor& x);  // the angle of the point (x, y), in [-pi, pi]
// Return start + weight * (end - start).
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);
Tensor lerp(const Tensor& start, const Tensor& end, double weight);
// Return x + value * a * b (addcmul) and x + value * a / b (addcdiv).
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);

// --- comparisons and functions of two operands, which broadcast (elementwise/pairs.cpp)
struct CloseOptions {
    double rtol = 1e-5;
    double atol = 1e-8;
    bool equal_nan = false;
};
// Returns whether elements are equal, or finite with |a - b| <= atol + rtol |b|, as booleans.
// Integers are compared exactly if both tolerances are 0. NaN is close to NaN only with equal_nan.
// Throws ValueError if a tolerance is negative.
Tensor isclose(const Tensor& a, const Tensor& b, const CloseOptions& options = {});
// Returns whether all elements are close. Waits for a GPU.
bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options = {});
// Returns whether a and b have the same shape and equal elements. Waits for a GPU.
bool equal(const Tensor& a, const Tensor& b);
// Return the larger or smaller element. Unlike maximum() and minimum(), they return the other
// element if one is NaN.
Tensor fmax(const Tensor& a, const Tensor& b);
Tensor fmin(const Tensor& a, const Tensor& b);
Tensor signbit(const Tensor& x);  // whether x is negative or -0; false for NaN
// Returns |a| with the sign of b. The sign of -0 is negative.
Tensor copysign(const Tensor& a, const Tensor& b);
Tensor hypot(const Tensor& a, const Tensor& b);       // sqrt(a^2 + b^2) without overflow
Tensor xlogy(const Tensor& a, const Tensor& b);       // a * ln(b), and 0 where a is 0 (b not NaN)
Tensor sinc(const Tensor& x);                         // sin(pi x) / (pi x), and 1 where x is 0
Tensor logaddexp(const Tensor& a, const Tensor& b);   // ln(e^a + e^b)
Tensor logaddexp2(const Tensor& a, const Tensor& b);  // log2(2^a + 2^b)

// --- logic and bits (elementwise/logic.cpp)
// Return booleans. A number is true unless it is 0; NaN is true.
Tensor logical_not(const Tensor& x);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
// Throw DTypeError unless the operands are integers or booleans.
Tensor bitwise_not(const Tensor& x);
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_and(const Tensor& a, Scalar b);
Tensor bitwise_or(const Tensor& a, Scalar b);
Tensor bitwise_xor(const Tensor& a, Scalar b);
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator&(const Tensor& a, Scalar b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, Scalar b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, Scalar b) { return bitwise_xor(a, b); }
// Returns a copy of x in which NaN and the infinities are replaced. The infinities become the
// largest and the least finite number of x's dtype unless a number is given. Integers do not
// change.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

// --- activations (elementwise/activations.cpp)
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1);
Tensor selu(const Tensor& x);
Tensor celu(const Tensor& x, double alpha = 1);  // throws ValueError if alpha is 0
// Returns ln(1 + e^(beta * x)) / beta, and x where beta * x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor logsigmoid(const Tensor& x);
Tensor mish(const Tensor& x);
Tensor hardswish(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);
// Returns x limited to [low, high]. Throws ValueError if low is above high.
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);
Tensor relu6(const Tensor& x);  // x limited to [0, 6]
// Return 0 where |x| <= lambda, and elsewhere x (hardshrink) or x moved towards 0 by lambda
// (softshrink). softshrink throws ValueError if lambda is negative.
Tensor hardshrink(const Tensor& x, double lambda = 0.5);
Tensor softshrink(const Tensor& x, double lambda = 0.5);
Tensor tanhshrink(const Tensor& x);  // x - tanh(x)
// Returns x where it is above the threshold, and the value elsewhere.
Tensor threshold(const Tensor& x, double threshold, double value);
// Returns x where it is positive, and weight * x elsewhere. The weight has one element, or is [C]
// for x [N, C, ...] (or [C]).
Tensor prelu(const Tensor& x, const Tensor& weight);
// Return a * sigmoid(b), a * silu(b) and a * gelu(b) for the two halves a and b of x along dim
// (Shazeer, arXiv:2002.05202). Throw ShapeError if x is 0-d or the size of dim is odd.
Tensor glu(const Tensor& x, std::int64_t dim = -1);
Tensor swiglu(const Tensor& x, std::int64_t dim = -1);
Tensor geglu(const Tensor& x, std::int64_t dim = -1);
// Returns softmax(-x, dim).
Tensor softmin(const Tensor& x, std::int64_t dim = -1);
// Returns a random sample of the categorical distributions with the given logits along dim (Jang et
// al., arXiv:1611.01144): softmax((logits + noise) / tau). If `hard` is true, returns the one-hot
// vector of its maximum, with the gradient of the soft sample. Throws ValueError unless tau is
// positive.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false,
                      std::int64_t dim = -1);

}  // namespace axle
