// Max pooling and average pooling over planes.
//
// x is [.., H, W] with any strides. y is [.., Ho, Wo] and contiguous, and has x's leading
// dimensions and dtype (f64, f32, f16 or bf16; 16-bit types are computed in f32). x and y must not
// overlap.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The windows along one axis. The window of output o contains the inputs o * stride - padding + k *
// dilation, k in [0, kernel), that are inside the tensor. With a dilation above 1, a window can be
// empty. padding is at most half of the kernel, and every window begins before the end of the
// input.
struct PoolAxis {
    std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
};

struct Pool {
    PoolAxis h = {}, w = {};
    // If true, output o of n covers the inputs [floor(o size / n), ceil((o + 1) size / n)), and h
    // and w are ignored.
    bool adaptive = false;
    // The divisor of a mean is `divisor` if it is not 0, else the number of elements in the window.
    // count_padding decides whether padding counts as elements. Means require dilation 1. With
    // `adaptive`, `divisor` must be 0.
    bool count_padding = true;
    std::int64_t divisor = 0;
};

// Writes the largest element of each window to y. If indices (i64, y's shape, contiguous) has data,
// it receives the position h * W + w of that element in its plane. Among equal maxima, the first in
// row-major order is selected. NaN counts as larger than every number; among several NaNs, the last
// is selected. The maximum of an empty window is -infinity, with any valid position.
void max_pool2d(Cpu& on, const Pool& pool, ConstView x, View y, View indices);
void max_pool2d(Cuda& on, const Pool& pool, ConstView x, View y, View indices);

// Writes the mean of each window to y.
void avg_pool2d(Cpu& on, const Pool& pool, ConstView x, View y);
void avg_pool2d(Cuda& on, const Pool& pool, ConstView x, View y);
// Computes dx[h, w] = sum of dy over the windows that contain (h, w), where each dy is divided by
// the divisor of its window. dy has y's shape and any strides; dx is contiguous [.., H, W], f64 for
// an f64 dy and f32 otherwise.
void avg_pool2d_backward(Cpu& on, const Pool& pool, ConstView dy, View dx);
void avg_pool2d_backward(Cuda& on, const Pool& pool, ConstView dy, View dx);

}  // namespace axle::kernels
