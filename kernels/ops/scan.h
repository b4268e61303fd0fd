// Cumulative sums and products along the last dimension.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y[..., i] = x[..., 0] + ... + x[..., i]. x and y have the same shape and dtype, floating
// or i64. f16 and bf16 are summed in f32; f32 is summed in f64 on the CPU. On a GPU, the bits
// depend on the strides but are the same in every run. x and y can be the same memory with the same
// strides.
void cumsum(Cpu& on, ConstView x, View y);
void cumsum(Cuda& on, ConstView x, View y);

// Computes y[..., i] = x[..., 0] * ... * x[..., i], with the same rules as cumsum.
void cumprod(Cpu& on, ConstView x, View y);
void cumprod(Cuda& on, ConstView x, View y);

// Computes dx from dy, the input x and the result y of cumprod. All have the same shape and
// floating dtype. There is no division by an element, so zeros in x are exact. With P[i] the
// product of the elements before i,
//     dx[i] = P[i] s[i], s[i] = dy[i] + x[i + 1] s[i + 1], s after the last element is 0.
void cumprod_backward(Cpu& on, ConstView dy, ConstView x, ConstView y, View dx);
void cumprod_backward(Cuda& on, ConstView dy, ConstView x, ConstView y, View dx);

}  // namespace axle::kernels
