// Computes y = f(x) for all formulas of AXLE_UNARY_FORMULAS. The operand is read once and the
// result is written once.
#include "kernels/cuda/pointwise/unary.cuh"

namespace axle::kernels {

#define AXLE_INSTANTIATE(NAME) template void unary(Cuda&, formula::NAME, ConstView, View);
AXLE_UNARY_FORMULAS(AXLE_INSTANTIATE)
#undef AXLE_INSTANTIATE

}  // namespace axle::kernels
