// Computes dx = dy slope(v) and out = curve(v) for all formulas of AXLE_UNARY_FORMULAS.
#include "kernels/cuda/pointwise/unary.cuh"

namespace axle::kernels {

#define AXLE_INSTANTIATE(NAME)                                                   \
    template void unary_slope(Cuda&, formula::NAME, ConstView, ConstView, View); \
    template void unary_curve(Cuda&, formula::NAME, ConstView, View);
AXLE_UNARY_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
