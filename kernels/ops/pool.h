// Max pooling and average pooling over planes.
//
// x is [.., H, W] with any strides. y is [.., Ho, Wo], contiguous, with the same leading dimensions
// and dtype (f64, f32, f16 or bf16; 16-bit types are computed in f32). x and y must not overlap.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The window of output o covers the inputs o * stride - padding + k * dilation for k in [0, kernel)
// that exist. With a dilation, there can be none. padding is at most half of the kernel, and every
// window begins before the end of the input.
struct PoolAxis {
    std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
};

struct Pool {
    PoolAxis h = {}, w = {};
    // If true, output o of n covers [floor(o size / n), ceil((o + 1) size / n)), and h and w are
    // ignored.
    bool adaptive = false;
    // The divisor of a mean: the number of elements in the window, with or without those in the
    // padding, or `divisor` if it is not 0. Requires dilation 1.
    bool count_padding = true;
    std::int64_t divisor = 0;
};

// Writes the largest element of each window to y. If indices (i64, y's shape, contiguous) has data,
// it receives the element's position h * W + w in the plane. Of equal elements, the first in
// row-major order counts. NaN counts as the largest, and the last NaN wins. The maximum of an empty
// window is -infinity, at some position inside the plane.
void max_pool2d(Cpu& on, const Pool& pool, ConstView x, View y, View indices);
void max_pool2d(Cuda& on, const Pool& pool, ConstView x, View y, View indices);

// Writes the mean of each window to y.
void avg_pool2d(Cpu& on, const Pool& pool, ConstView x, View y);
void avg_pool2d(Cuda& on, const Pool& pool, ConstView x, View y);
// Computes dx[h, w] = sum of dy over the windows that cover (h, w), each divided as in avg_pool2d.
// dy has y's shape and any strides; dx is contiguous [.., H, W], f64 for an f64 dy and f32
// otherwise.
void avg_pool2d_backward(Cpu& on, const Pool& pool, ConstView dy, View dx);
void avg_pool2d_backward(Cuda& on, const Pool& pool, ConstView dy, View dx);

}  // namespace axle::kernels
