// Comparisons y = f(a, b) with a boolean y, and the selection y = condition ? a : b.
#include "kernels/cuda/pointwise/elementwise.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/pointwise.h"

namespace axle::kernels {
namespace {

template <class F, class T>
struct Holds {
    F formula;
    __device__ std::uint8_t operator()(T a, T b) const {
        using C = Compute<T>;
        return formula.value(static_cast<C>(a), static_cast<C>(b));
    }
};

template <class Bits>
struct Choice {
    __device__ Bits operator()(std::uint8_t condition, Bits a, Bits b) const {
        return condition != 0 ? a : b;
    }
};

}  // namespace

template <class F>
void binary(Cuda& on, F f, ConstView a, ConstView b, View y) {
    visit_lanes<true>(
        a.dtype, [&]<class T>() { elementwise<std::uint8_t, T, T>(on, Holds<F, T>{f}, y, a, b); });
}

#define AXLE_INSTANTIATE(NAME) \
    template void binary(Cuda&, formula::NAME, ConstView, ConstView, View);
AXLE_COMPARISON_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

void where(Cuda& on, ConstView condition, ConstView a, ConstView b, View y) {
    visit_bits(y.dtype, [&]<class Bits>() {
        elementwise<Bits, std::uint8_t, Bits, Bits>(on, Choice<Bits>(), y, condition, a, b);
    });
}

}  // namespace axle::kernels
