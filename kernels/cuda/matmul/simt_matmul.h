// Private to kernels: the matrix product that needs no library.
#pragma once

#include <utility>

#include "kernels/ops/matmul.h"

namespace axle::inline v0::kernels {

// matmul() for everything that its header allows.
void simt_matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});

// The epilogue of a product whose sums have c's shape and are f32, or f64 as c is. c is floating
// and the epilogue's accumulate is ignored.
void finish_product(Cuda& on, ConstView sums, View c, const MatmulEpilogue& epilogue);

// With its last two dimensions exchanged.
template <class V>
V transposed(V x) {
    std::swap(x.shape[x.ndim - 1], x.shape[x.ndim - 2]);
    std::swap(x.stride[x.ndim - 1], x.stride[x.ndim - 2]);
    return x;
}

}  // namespace axle::inline v0::kernels
