// Matrix products, and the column sum that their gradients need.
#pragma once

#include "kernels/activation.h"
#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Operations applied to a product before it is rounded and stored:
//     c = activation(a b + bias + (accumulate ? c : 0))
struct MatmulEpilogue {
    bool accumulate = false;
    ConstView bias = {};  // [N], any floating dtype; absent if its data is null
    Activation activation = Activation::none;
    // An optional output with c's shape and dtype, which receives the argument of the activation.
    View pre = {};
    // Optional input with c's shape and dtype. If it has data, the product is multiplied by the
    // activation's derivative instead:
    //     c = (a b + bias + (accumulate ? c : 0)) activation'(slope_of)
    // It contains arguments of the activation, or for relu its results. It cannot be combined with
    // `pre` and must not overlap c.
    ConstView slope_of = {};
};

// Computes c = a b, with a [..., M, K], b [..., K, N] and c [..., M, N]. All have the same number
// of dimensions (at least 2) and the same batch dimensions (a stride of 0 broadcasts). Any strides
// are supported, so transposed operands need no copy. Fastest are operands that are contiguous in
// one of their two last dimensions and a c with contiguous rows. c must not overlap a or b. Sizes
// can be 0; an empty sum is 0.
//
// Dtypes: f64, f32, f16, bf16 (a and b have one dtype, c the same or a wider one; 16-bit types are
// summed in f32 and rounded once), or i64, i32, u8, which wrap around and support only `accumulate`
// in the epilogue.
//
// The order in which an element's terms are added depends only on K; on a GPU with cuBLASLt, it
// depends on all arguments except the data. On a GPU, an activation can be computed from its
// argument rounded to c's dtype, and a slope can be multiplied with a product rounded to c's dtype.
// On CPUs with bf16 instructions (AVX512_BF16), bf16 products can treat denormal elements, terms
// and sums as 0.
void matmul(Cpu& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});
void matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});

// Computes c = a b and row_sum[m] = sum over k of a[m, k], in one pass over a if possible. These
// are the gradients of a weight and its bias. a is [M, K], b is [K, N], c is [M, N]; row_sum is
// [M], of any floating dtype, and overlaps nothing. A c with contiguous columns is as fast as one
// with contiguous rows.
void matmul_row_sum(Cpu& on, ConstView a, ConstView b, View c, View row_sum);
void matmul_row_sum(Cuda& on, ConstView a, ConstView b, View c, View row_sum);

// Computes y[n] = sum over m of x[m, n]. x is [M, N] with any strides, y is [N]; both are floating.
// Sums are computed in f32 or f64.
void column_sum(Cpu& on, ConstView x, View y);
void column_sum(Cuda& on, ConstView x, View y);

}  // namespace axle::kernels
