// Largest and mean values of windows over planes.
//
// x is [.., H, W] with any strides, y is [.., Ho, Wo] with the same leading dimensions, contiguous
// and of x's dtype (f64 f32 f16 bf16; halves are computed in f32). They must not overlap.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// Output o sees the inputs o * stride - padding + k * dilation for k in [0, kernel), as far as they
// exist, and with a dilation perhaps none. padding is at most half of the kernel, and every window
// begins before the end.
struct PoolAxis {
    std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
};

struct Pool {
    PoolAxis h = {}, w = {};
    // Output o of n sees [floor(o size / n), ceil((o + 1) size / n)); the axes say nothing then.
    bool adaptive = false;
    // What a mean divides by: the elements of the window, with those of the padding (as far as the
    // padding reaches) or without; or this number if it isn't 0. Needs dilation 1.
    bool count_padding = true;
    std::int64_t divisor = 0;
};

// The largest element and, where indices (i64, y's shape, contiguous) has data, its place h * W + w
// in the plane: the first of ties in row-major order, and a NaN counts as largest (its last place).
// A window that sees nothing is -infinity, with a place inside the plane.
void max_pool2d(Cpu& on, const Pool& pool, ConstView x, View y, View indices);
void max_pool2d(Cuda& on, const Pool& pool, ConstView x, View y, View indices);

void avg_pool2d(Cpu& on, const Pool& pool, ConstView x, View y);
void avg_pool2d(Cuda& on, const Pool& pool, ConstView x, View y);
// dx[h, w] = the sum of dy over the windows that see (h, w), each divided as above. dy has y's
// shape and any strides, dx is contiguous [.., H, W], f64 for an f64 dy and f32 otherwise.
void avg_pool2d_backward(Cpu& on, const Pool& pool, ConstView dy, View dx);
void avg_pool2d_backward(Cuda& on, const Pool& pool, ConstView dy, View dx);

}  // namespace axle::inline v0::kernels
