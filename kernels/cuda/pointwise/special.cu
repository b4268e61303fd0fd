// Computes the values and derivatives of the unary formulas of special_formulas.inl.
#include "kernels/cuda/pointwise/unary.cuh"

namespace axle::kernels {

#define AXLE_INSTANTIATE(NAME)                                                   \
    template void unary(Cuda&, formula::NAME, ConstView, View);                  \
    template void unary_slope(Cuda&, formula::NAME, ConstView, ConstView, View); \
    template void unary_curve(Cuda&, formula::NAME, ConstView, View);
AXLE_SPECIAL_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
