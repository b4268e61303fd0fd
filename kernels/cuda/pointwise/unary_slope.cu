// Computes dx = dy slope(v) and out = curve(v) for all unary formulas.
#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/copy.h"
#include "kernels/ops/pointwise.h"

namespace axle::kernels {
namespace {

template <class F, class T>
struct Slope {
    F formula;
    __device__ T operator()(T dy, T v) const {
        using C = Compute<T>;
        return convert<T>(static_cast<C>(dy) * formula.slope(static_cast<C>(v)));
    }
};

template <class F, class T>
struct Curve {
    F formula;
    __device__ T operator()(T v) const {
        return convert<T>(formula.curve(static_cast<Compute<T>>(v)));
    }
};

}  // namespace

template <class F>
void unary_slope(Cuda& on, F f, ConstView dy, ConstView v, View dx) {
    DeviceScratch scratch(on);
    const ConstView like_v = as_dtype(on, scratch, dy, v.dtype);
    visit_lanes<false>(v.dtype,
                       [&]<class T>() { elementwise<T, T, T>(on, Slope<F, T>{f}, dx, like_v, v); });
}

template <class F>
void unary_curve(Cuda& on, F f, ConstView v, View out) {
    visit_lanes<false>(v.dtype, [&]<class T>() { elementwise<T, T>(on, Curve<F, T>{f}, out, v); });
}

#define AXLE_INSTANTIATE(NAME)                                                   \
    template void unary_slope(Cuda&, formula::NAME, ConstView, ConstView, View); \
    template void unary_curve(Cuda&, formula::NAME, ConstView, View);
AXLE_UNARY_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
