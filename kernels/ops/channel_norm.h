// Batch norm and group norm of x [N, C, ...], and their backward passes.
//
// x and dy have any strides (those that are not row-major are copied first); y and dx are
// contiguous. weight and bias are [C], or a view without data where there is none. The dtypes may
// differ within {f32, f16, bf16} (computed in f32) or are all f64. Statistics and the gradients of
// weight and bias are contiguous, in f32 (f64 for f64); a gradient without data is not computed.
// Variances divide by the number of elements, sums over many elements are carried in f64.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// y = (x - mean) rstd weight + bias with the mean and rstd = 1 / sqrt(variance + eps) of each
// channel, which are written to mean and rstd [C]. running_mean and running_var, [C] of x's kind of
// dtypes or without data, become running + momentum (newest - running), the variance dividing by
// the number of elements less one. x is not empty.
void batch_norm(Cpu& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd, View running_mean, View running_var, double momentum);
void batch_norm(Cuda& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd, View running_mean, View running_var, double momentum);
// The same with given mean and rstd.
void batch_norm_apply(Cpu& on, ConstView x, ConstView mean, ConstView rstd, ConstView weight,
                      ConstView bias, View y);
void batch_norm_apply(Cuda& on, ConstView x, ConstView mean, ConstView rstd, ConstView weight,
                      ConstView bias, View y);

// With h = (x - mean) rstd and g = dy weight: dweight = sum(dy h), dbias = sum(dy) over a channel.
// dx = rstd (g - mean(g) - h mean(g h)) where x gave the statistics, else dx = rstd g.
void batch_norm_backward(Cpu& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, bool own_statistics, View dx, View dweight, View dbias);
void batch_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, bool own_statistics, View dx, View dweight, View dbias);

// The same per sample and group of C / groups channels: mean and rstd are [N, groups].
void group_norm(Cpu& on, ConstView x, std::int64_t groups, ConstView weight, ConstView bias,
                double eps, View y, View mean, View rstd);
void group_norm(Cuda& on, ConstView x, std::int64_t groups, ConstView weight, ConstView bias,
                double eps, View y, View mean, View rstd);
void group_norm_backward(Cpu& on, ConstView dy, ConstView x, std::int64_t groups, ConstView weight,
                         ConstView mean, ConstView rstd, View dx, View dweight, View dbias);
void group_norm_backward(Cuda& on, ConstView dy, ConstView x, std::int64_t groups, ConstView weight,
                         ConstView mean, ConstView rstd, View dx, View dweight, View dbias);

}  // namespace axle::inline v0::kernels
