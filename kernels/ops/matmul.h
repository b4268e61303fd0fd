// Matrix products, and the column sums that their gradients need.
#pragma once

#include "kernels/activation.h"
#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Operations applied to a product before it is rounded and stored:
//     c = activation(a b + bias + (accumulate ? c : 0))
struct MatmulEpilogue {
    bool accumulate = false;
    ConstView bias = {};  // [N], any floating dtype; no bias if its data is null
    Activation activation = Activation::none;
    // An optional output with c's shape and dtype, which receives the argument of the activation.
    View pre = {};
    // If true, `pre` receives the derivative activation'(argument) instead, which costs little in
    // the pass that applies the activation, and slope_of contains such derivatives. Only for a CPU:
    // with Cuda, matmul() throws ValueError.
    bool stores_slopes = false;
    // An optional input with c's shape and dtype. If it has data, the product is multiplied by the
    // activation's derivative:
    //     c = (a b + bias + (accumulate ? c : 0)) activation'(slope_of)
    // Unless stores_slopes is true, slope_of contains the arguments of the activation, or its
    // results if the activation is relu. It cannot be combined with `pre` and must not overlap c.
    ConstView slope_of = {};
    // A hint: c is not read soon. A CPU then writes a large f32 c without reading it into the
    // caches first, if the epilogue has no other members.
    bool bypasses_caches = false;
};

// Computes c = a b, with a [..., M, K], b [..., K, N] and c [..., M, N]. All have the same number
// of dimensions (at least 2) and the same batch dimensions (a stride of 0 broadcasts). Any strides
// are supported, so transposed operands need no copy. The fastest layouts are operands that are
// contiguous in one of their two last dimensions, and a c with contiguous rows. c must not overlap
// a or b. Sizes can be 0; an empty sum is 0.
//
// a and b have one dtype. If it is f64, f32, f16 or bf16, c has the same or a wider dtype; 16-bit
// types are summed in f32 and rounded once. If it is i64, i32 or u8, c has the same dtype, values
// wrap around on overflow, and the epilogue supports only `accumulate`.
//
// The order in which an element's terms are added depends on K and the dtypes. On a CPU, it also
// depends on the strides if M or N is 1. On a GPU with cuBLASLt, it depends on all arguments except
// the data and, unless `on` is deterministic, on the measured time of the algorithms. On a GPU,
// intermediate results may be rounded to c's dtype: the argument of an activation, and a product
// that is multiplied by a slope. On CPUs with bf16 instructions (AVX512_BF16), bf16 products may
// treat denormal elements, terms and sums as 0.
void matmul(Cpu& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});
void matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});

// Computes c = a b and row_sum[m] = sum over k of a[m, k], in one pass over a if possible. These
// are the gradients of a weight and its bias. a is [M, K], b is [K, N], c is [M, N]. row_sum is
// [M], has any floating dtype, and must not overlap another operand. c is fastest with contiguous
// rows or contiguous columns.
void matmul_row_sum(Cpu& on, ConstView a, ConstView b, View c, View row_sum);
void matmul_row_sum(Cuda& on, ConstView a, ConstView b, View c, View row_sum);

// Computes y[n] = sum over m of x[m, n]. x is [M, N] with any strides, y is [N]; both are floating.
// Sums are computed in f32 or f64.
void column_sum(Cpu& on, ConstView x, View y);
void column_sum(Cuda& on, ConstView x, View y);

}  // namespace axle::kernels
