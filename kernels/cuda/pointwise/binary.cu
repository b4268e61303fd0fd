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

}  // namespace

template <class F>
void binary(Cuda& on, F f, ConstView a, ConstView b, View y) {
    visit_lanes<F::kIntegers>(
        y.dtype, [&]<class T>() { elementwise<T, T, T>(on, Value<F, T>{f}, y, a, b); });
}

#define AXLE_INSTANTIATE(NAME) \
    template void binary(Cuda&, formula::NAME, ConstView, ConstView, View);
AXLE_BINARY_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
