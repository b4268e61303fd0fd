// Cumulative sums, products and extremes along the last dimension.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y[..., i] = x[..., 0] + ... + x[..., i]. x and y have the same shape and dtype, floating
// or i64. f16 and bf16 are summed in f32; the CPU sums f32 in f64. On a GPU, rounding depends on
// the strides but is the same in every run. x and y can be the same memory with the same strides.
void cumsum(Cpu& on, ConstView x, View y);
void cumsum(Cuda& on, ConstView x, View y);

// Computes y[..., i] = x[..., 0] * ... * x[..., i], under the same conditions as cumsum.
void cumprod(Cpu& on, ConstView x, View y);
void cumprod(Cuda& on, ConstView x, View y);

// Computes dx from dy, the input x and the result y of cumprod. All have the same shape and
// floating dtype. The formula has no division by an element, so zeros in x cause no error. If P[i]
// is the product of the elements before i, then
//     dx[i] = P[i] s[i], where s[i] = dy[i] + x[i + 1] s[i + 1], and s is 0 after the last element.
void cumprod_backward(Cpu& on, ConstView dy, ConstView x, ConstView y, View dx);
void cumprod_backward(Cuda& on, ConstView dy, ConstView x, ConstView y, View dx);

// Writes to y the largest (or smallest) element of the row up to each element, or NaN after a NaN,
// and to index (i64) its position in the row. The last of equal elements or the last NaN is
// selected. All views have the same shape, and y has x's dtype, which is any compute dtype. Exists
// only for CPUs; ops on a GPU combine elementwise kernels.
void cumulative_extreme(Cpu& on, bool largest, ConstView x, View y, View index);

}  // namespace axle::kernels
