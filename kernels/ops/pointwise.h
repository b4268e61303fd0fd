// Elementwise kernels: out[i] = f(in0[i], in1[i], ...), with broadcasting by stride 0.
//
// A formula is one struct in a file *_formulas.inl. Its functions are templates of the element
// type. This header compiles the formulas for scalars (used for names, parameters and CUDA, and on
// the CPU for f64, integers, comparisons and special_formulas.inl). kernels/cpu/ compiles them
// again for every instruction set, as loops over contiguous SIMD lanes. Formulas do not handle
// strides and storage types. On the CPU, run_spans() (kernels/cpu/pointwise/spans.h) gathers
// strided elements and converts 16-bit elements, in blocks that fit in the L1 cache. So every
// layout gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/exec.h"
#include "kernels/ops/special_functions.h"
#include "kernels/view.h"

namespace axle::kernels {

namespace formula {

using std::abs;
using std::ceil;
using std::erf;
using std::exp;
using std::expm1;
using std::floor;
using std::log;
using std::log1p;
using std::pow;
using std::rint;
using std::sqrt;
using std::tanh;
using std::trunc;

// The functions that formulas use besides arithmetic, for scalars. SIMD packs have their own
// versions.
template <class T>
AXLE_HOST_DEVICE constexpr T select(bool condition, T yes, T no) {
    return condition ? yes : no;
}
template <class T>
AXLE_HOST_DEVICE constexpr bool is_nan(T x) {
    return x != x;
}
// The distribution function of the standard normal distribution, Phi(x).
template <class T>
AXLE_HOST_DEVICE T normal_cdf(T x) {
    return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
}
// The derivative of the exact GELU, Phi(x) + x phi(x).
template <class T>
AXLE_HOST_DEVICE T gelu_slope(T x) {
    return normal_cdf(x) + x * (T(0.39894228040143267794) * exp(T(-0.5) * x * x));
}

// These files must be included in this order.
// clang-format off
#include "kernels/ops/unary_formulas.inl"
#include "kernels/ops/rounding_formulas.inl"
#include "kernels/ops/nonlinearity_formulas.inl"
#include "kernels/ops/binary_formulas.inl"
#include "kernels/ops/activation_formulas.inl"
#include "kernels/ops/special_formulas.inl"
// clang-format on

}  // namespace formula

// Computes y = f(x). The views have one shape (x can be broadcast by stride 0), and y has x's
// dtype. x and y can be the same memory with the same strides.
template <class F>
void unary(Cpu& on, F f, ConstView x, View y);
template <class F>
void unary(Cuda& on, F f, ConstView x, View y);

// Computes dx = dy * f.slope(v), where v is saved by the forward pass. v is the output of the
// formula if kSavesOutput is true, else its input. dy and v are floating, and dx has v's dtype.
template <class F>
void unary_slope(Cpu& on, F f, ConstView dy, ConstView v, View dx);
template <class F>
void unary_slope(Cuda& on, F f, ConstView dy, ConstView v, View dx);

// Computes out = f.curve(v), the derivative of f.slope(v) with respect to v. v is floating, and out
// has v's dtype.
template <class F>
void unary_curve(Cpu& on, F f, ConstView v, View out);
template <class F>
void unary_curve(Cuda& on, F f, ConstView v, View out);

// Computes y = f(a, b). a, b and y have the same dtype, but y is boolean for comparisons.
template <class F>
void binary(Cpu& on, F f, ConstView a, ConstView b, View y);
template <class F>
void binary(Cuda& on, F f, ConstView a, ConstView b, View y);

// Computes y = condition ? a : b for each element. condition is boolean; a, b and y have the same
// compute dtype.
void where(Cpu& on, ConstView condition, ConstView a, ConstView b, View y);
void where(Cuda& on, ConstView condition, ConstView a, ConstView b, View y);

}  // namespace axle::kernels
