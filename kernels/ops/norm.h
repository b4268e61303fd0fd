// Layer norm and RMS norm over the last dimension, and their backward passes.
//
// x is [..., n] with any strides; y, dy and dx have its shape. weight and bias are [n], or views
// without data if they are absent. The dtypes are either any mix of f32, f16 and bf16, computed in
// f32, or all f64. mean and rstd have one element per row in row-major order; they are contiguous
// f32 (f64 for f64). dweight and dbias are contiguous [n] with the dtype of rstd.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = (x - mean) rstd weight + bias, where rstd = 1 / sqrt(variance + eps). The variance
// is computed in two passes, with n as the divisor. y can be the same view as x.
void layer_norm(Cpu& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd);
void layer_norm(Cuda& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd);

// Computes the gradients dx, dweight and dbias. With h = (x - mean) rstd and g = dy weight, dx =
// rstd (g - mean(g) - h mean(g h)). dweight is the sum of dy h over the rows, and dbias is the sum
// of dy. Outputs without data are not computed. dx can be the same view as dy or x.
void layer_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, View dx, View dweight, View dbias);
void layer_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, View dx, View dweight, View dbias);

// Computes y = x rstd weight, where rstd = 1 / sqrt(mean(x^2) + eps). y can be the same view as x.
void rms_norm(Cpu& on, ConstView x, ConstView weight, double eps, View y, View rstd);
void rms_norm(Cuda& on, ConstView x, ConstView weight, double eps, View y, View rstd);

// Computes the gradients dx and dweight. With h = x rstd and g = dy weight, dx = rstd (g - h mean(g
// h)). dweight is the sum of dy h over the rows. Outputs without data are not computed. dx can be
// the same view as dy or x.
void rms_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView rstd,
                       View dx, View dweight);
void rms_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView rstd,
                       View dx, View dweight);

}  // namespace axle::kernels
