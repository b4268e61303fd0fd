// Matrix products, and the column sum that their gradients need.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

// What happens to a product before it is rounded and stored:
//     c = activation(a b + bias + (accumulate ? c : 0))
struct MatmulEpilogue {
    bool accumulate = false;
    ConstView bias = {};  // [N], any floating dtype; absent without data
    Activation activation = Activation::none;
    View pre =
        {};  // c's shape and dtype: receives the argument of the activation; absent without data
    // c's shape and dtype; with data, the activation's slope takes the activation's place:
    //     c = (a b + bias + (accumulate ? c : 0)) activation'(slope_of)
    // It holds arguments of the activation, or for relu its values. It excludes pre, and doesn't
    // overlap c.
    ConstView slope_of = {};
};

// c = a b: a [..., M, K], b [..., K, N], c [..., M, N], all with the same number of dimensions (at
// least 2) and equal batches (a stride of 0 broadcasts). Strides are free, so a transpose costs
// nothing to express; fastest are operands contiguous in one of their two dimensions and a c
// contiguous in its rows. c overlaps neither a nor b. Sizes may be 0: an empty sum is 0.
//
// f64, f32, f16, bf16 (a and b of one dtype, c of the same or a wider one; 16-bit types are summed
// in f32 and rounded once), or i64, i32, u8, which wrap around and take no epilogue but accumulate.
// An element's terms are added in an order that depends on K alone; on a GPU with cuBLASLt, on all
// that the product is given but the data.
// On a GPU an activation may be computed from its argument as that is rounded for c. A slope may be
// multiplied with what is rounded for c.
// Where the CPU multiplies bf16 (AVX512_BF16), products of bf16 may take denormal elements, terms
// and sums for 0.
void matmul(Cpu& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});
void matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue = {});

// c = a b and row_sum[m] = sum over k of a[m, k], in one pass over a where that can be: the
// gradients of a weight and its bias. a [M, K], b [K, N], c [M, N], row_sum [M] of any floating
// dtype, which overlaps nothing. A c contiguous in its columns is as good as one contiguous in its
// rows.
void matmul_row_sum(Cpu& on, ConstView a, ConstView b, View c, View row_sum);
void matmul_row_sum(Cuda& on, ConstView a, ConstView b, View c, View row_sum);

// y[n] = sum over m of x[m, n]: x [M, N] of any strides, y [N]; floating, summed in f32 or f64.
void column_sum(Cpu& on, ConstView x, View y);
void column_sum(Cuda& on, ConstView x, View y);

}  // namespace axle::inline v0::kernels
