// Convolution of images, in the sense of machine learning (the kernel is not mirrored).
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// Along one dimension of the images.
struct ConvAxis {
    std::int64_t stride = 1;
    std::int64_t padding = 0;  // zeros on both sides
    std::int64_t dilation = 1;
};
struct ConvGeometry {
    ConvAxis h, w;
    std::int64_t groups = 1;
};

// The three directions of one linear map. x [N, C, H, W], weight w [O, C / groups, KH, KW],
// y [N, O, R, Q] with R = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1, rounded down, and Q
// likewise; with p = padding, s = stride, d = dilation and the channels c of o's group:
//
//     y[n, o, r, q] = bias[o] + sum over c, i, j of w[o, c, i, j] x[n, c, r s - p + i d, ...]
//
// All sizes are positive but N. f64, f32, f16 and bf16, one dtype for all; 16-bit types are summed
// in f32 and rounded once. Strides are free; fastest are images and weights that are contiguous.
// The result overlaps no operand. The order in which an element's terms are added depends on the
// shapes alone.
void conv2d(Cpu& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y);
void conv2d(Cuda& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y);

// dx = bias (of x's channels) + the transposed map of dy [N, O, R, Q]. Elements of x that no window
// reached get the bias. bias: [C], absent without data, in both functions.
void conv2d_transposed(Cpu& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx);
void conv2d_transposed(Cuda& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx);

// dw[o, c, i, j] = sum over n, r, q of dy[n, o, r, q] x[n, c, r s - p + i d, ...]
void conv2d_weight_gradient(Cpu& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw);
void conv2d_weight_gradient(Cuda& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw);

}  // namespace axle::inline v0::kernels
