// Private to kernels: the matrix product that needs no library, and helpers that it shares with the
// product of cuBLASLt.
#pragma once

#include <utility>

#include "kernels/ops/matmul.h"

namespace axle::kernels {

// Computes matmul() of kernels/ops/matmul.h for all dtypes, layouts and epilogues.
void simt_matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});

// Applies the epilogue to sums and writes the result to c. sums has c's shape and dtype f32 (f64 if
// c is f64). c is floating. epilogue.accumulate is ignored.
void finish_product(Cuda& on, ConstView sums, View c, const MatmulEpilogue& epilogue);

// Returns x with its last two dimensions swapped.
template <class V>
V transposed(V x) {
    std::swap(x.shape[x.ndim - 1], x.shape[x.ndim - 2]);
    std::swap(x.stride[x.ndim - 1], x.stride[x.ndim - 2]);
    return x;
}

}  // namespace axle::kernels
