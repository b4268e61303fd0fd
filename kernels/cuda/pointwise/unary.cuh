// Unary formulas: y = f(x), dx = dy slope(v) and out = curve(v). Each source that includes this
// header instantiates a part of the functions.
#pragma once

#include <utility>

#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/copy.h"
#include "kernels/ops/pointwise.h"

namespace axle::kernels {

// Calls f<T>() with the type of a dtype for which formula F is compiled.
template <class F, bool kIntegers, class Call>
void visit_operand(DType t, Call&& f) {
    if constexpr (requires { F::kScalarOnly; })
        visit_f32_f64(t, std::forward<Call>(f));
    else
        visit_lanes<kIntegers>(t, std::forward<Call>(f));
}

// Returns whether operands must be converted to f32, because formula F is not compiled for t.
template <class F>
bool needs_f32(DType t) {
    return requires { F::kScalarOnly; } && is_half(t);
}

template <class F, class T>
struct UnaryValue {
    F formula;
    __device__ T operator()(T x) const {
        return convert<T>(formula.value(static_cast<Compute<T>>(x)));
    }
};

template <class F, class T>
struct UnarySlope {
    F formula;
    __device__ T operator()(T dy, T v) const {
        using C = Compute<T>;
        return convert<T>(static_cast<C>(dy) * formula.slope(static_cast<C>(v)));
    }
};

template <class F, class T>
struct UnaryCurve {
    F formula;
    __device__ T operator()(T v) const {
        return convert<T>(formula.curve(static_cast<Compute<T>>(v)));
    }
};

template <class F>
void unary(Cuda& on, F f, ConstView x, View y) {
    if (needs_f32<F>(x.dtype)) {
        DeviceScratch scratch(on);
        const ConstView wide = as_dtype(on, scratch, x, DType::f32);
        return compute_in_f32(on, scratch, y, [&](View result) { unary(on, f, wide, result); });
    }
    visit_operand<F, F::kIntegers>(
        x.dtype, [&]<class T>() { elementwise<T, T>(on, UnaryValue<F, T>{f}, y, x); });
}

template <class F>
void unary_slope(Cuda& on, F f, ConstView dy, ConstView v, View dx) {
    DeviceScratch scratch(on);
    if (needs_f32<F>(v.dtype)) {
        const ConstView wide_dy = as_dtype(on, scratch, dy, DType::f32),
                        wide_v = as_dtype(on, scratch, v, DType::f32);
        return compute_in_f32(on, scratch, dx,
                              [&](View result) { unary_slope(on, f, wide_dy, wide_v, result); });
    }
    const ConstView like_v = as_dtype(on, scratch, dy, v.dtype);
    visit_operand<F, false>(
        v.dtype, [&]<class T>() { elementwise<T, T, T>(on, UnarySlope<F, T>{f}, dx, like_v, v); });
}

template <class F>
void unary_curve(Cuda& on, F f, ConstView v, View out) {
    if (needs_f32<F>(v.dtype)) {
        DeviceScratch scratch(on);
        const ConstView wide = as_dtype(on, scratch, v, DType::f32);
        return compute_in_f32(on, scratch, out,
                              [&](View result) { unary_curve(on, f, wide, result); });
    }
    visit_operand<F, false>(v.dtype,
                            [&]<class T>() { elementwise<T, T>(on, UnaryCurve<F, T>{f}, out, v); });
}

}  // namespace axle::kernels
