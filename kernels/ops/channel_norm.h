// Batch norm and group norm of x [N, C, ...], and their backward passes.
//
// x and dy have any strides (they are copied first unless they are row-major); y and dx are
// contiguous. weight and bias are [C], or views without data if they are absent. The dtypes are
// either any mix of f32, f16 and bf16, computed in f32, or all f64. Statistics and the gradients of
// weight and bias are contiguous f32 (f64 for f64). A gradient whose view has no data is not
// computed. The divisor of a variance is the number of elements. Sums over many elements are
// accumulated in f64.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = (x - mean) rstd weight + bias. mean and rstd = 1 / sqrt(variance + eps) are computed
// from each channel of the batch and written to mean and rstd [C]. running_mean and running_var are
// [C] or without data; they are f64 if x is f64, and any mix of the other dtypes otherwise. They
// become running + momentum (new - running), where the divisor of the new variance is the number of
// elements minus one. x must not be empty.
void batch_norm(Cpu& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd, View running_mean, View running_var, double momentum);
void batch_norm(Cuda& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd, View running_mean, View running_var, double momentum);
// Computes y = (x - mean) rstd weight + bias with given mean and rstd.
void batch_norm_apply(Cpu& on, ConstView x, ConstView mean, ConstView rstd, ConstView weight,
                      ConstView bias, View y);
void batch_norm_apply(Cuda& on, ConstView x, ConstView mean, ConstView rstd, ConstView weight,
                      ConstView bias, View y);

// Computes the gradients dx, dweight and dbias. With h = (x - mean) rstd and g = dy weight, dweight
// = sum(dy h) and dbias = sum(dy) over each channel. If batch_statistics is true (mean and rstd
// were computed from x), dx = rstd (g - mean(g) - h mean(g h)). Otherwise dx = rstd g.
void batch_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, bool batch_statistics, View dx, View dweight, View dbias);
void batch_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, bool batch_statistics, View dx, View dweight, View dbias);

// Computes y = (x - mean) rstd weight + bias with the statistics of each sample and each group of C
// / groups channels. mean and rstd are [N, groups], computed from x.
void group_norm(Cpu& on, ConstView x, std::int64_t groups, ConstView weight, ConstView bias,
                double eps, View y, View mean, View rstd);
void group_norm(Cuda& on, ConstView x, std::int64_t groups, ConstView weight, ConstView bias,
                double eps, View y, View mean, View rstd);
// Computes the gradients dx, dweight and dbias of group_norm. With h = (x - mean) rstd and g = dy
// weight, dx = rstd (g - mean(g) - h mean(g h)) with the means over each sample and group. dweight
// = sum(dy h) and dbias = sum(dy) over each channel of all samples.
void group_norm_backward(Cpu& on, ConstView dy, ConstView x, std::int64_t groups, ConstView weight,
                         ConstView mean, ConstView rstd, View dx, View dweight, View dbias);
void group_norm_backward(Cuda& on, ConstView dy, ConstView x, std::int64_t groups, ConstView weight,
                         ConstView mean, ConstView rstd, View dx, View dweight, View dbias);

}  // namespace axle::kernels
