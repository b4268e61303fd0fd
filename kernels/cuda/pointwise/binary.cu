// Binary formulas, y = f(a, b). Each operand is read once and the result is written once.
#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/pointwise.h"

namespace axle::kernels {
namespace {

template <class F, class T>
struct Value {
    F formula;
    __device__ T operator()(T a, T b) const {
        using C = Compute<T>;
        return convert<T>(formula.value(static_cast<C>(a), static_cast<C>(b)));
    }
};

// Calls f<T>() with the type of a dtype for which formula F is compiled.
template <class F, class Call>
void visit_operand(DType t, Call&& f) {
    if constexpr (requires { F::kBitwise; })
        visit_integer(t, std::forward<Call>(f));
    else if constexpr (!(requires { F::kScalarOnly; }))
        visit_lanes<F::kIntegers>(t, std::forward<Call>(f));
    else if (is_floating(t))
        visit_f32_f64(t, std::forward<Call>(f));
    else if constexpr (F::kIntegers)
        visit_integer(t, std::forward<Call>(f));
}

}  // namespace

template <class F>
void binary(Cuda& on, F f, ConstView a, ConstView b, View y) {
    if (requires { F::kScalarOnly; } && is_half(y.dtype)) {
        DeviceScratch scratch(on);
        const ConstView wide_a = as_dtype(on, scratch, a, DType::f32),
                        wide_b = as_dtype(on, scratch, b, DType::f32);
        return compute_in_f32(on, scratch, y,
                              [&](View result) { binary(on, f, wide_a, wide_b, result); });
    }
    visit_operand<F>(y.dtype,
                     [&]<class T>() { elementwise<T, T, T>(on, Value<F, T>{f}, y, a, b); });
}

#define AXLE_INSTANTIATE(NAME) \
    template void binary(Cuda&, formula::NAME, ConstView, ConstView, View);
AXLE_BINARY_FORMULAS(AXLE_INSTANTIATE)
AXLE_SPECIAL_BINARY_FORMULAS(AXLE_INSTANTIATE)
AXLE_BITWISE_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
