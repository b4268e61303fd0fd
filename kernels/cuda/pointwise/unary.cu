// Unary formulas, y = f(x). The operand is read once and the result is written once.
#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/pointwise.h"

namespace axle::kernels {
namespace {

template <class F, class T>
struct Value {
    F formula;
    __device__ T operator()(T x) const {
        return convert<T>(formula.value(static_cast<Compute<T>>(x)));
    }
};

}  // namespace

template <class F>
void unary(Cuda& on, F f, ConstView x, View y) {
    visit_lanes<F::kIntegers>(x.dtype,
                              [&]<class T>() { elementwise<T, T>(on, Value<F, T>{f}, y, x); });
}

#define AXLE_INSTANTIATE(NAME) template void unary(Cuda&, formula::NAME, ConstView, View);
AXLE_UNARY_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
