// 2-d convolution as used in machine learning. It is a cross-correlation: the kernel is not
// flipped.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The parameters along one image dimension.
struct ConvAxis {
    std::int64_t stride = 1;
    std::int64_t padding = 0;  // number of zeros added on each side
    std::int64_t dilation = 1;
};
struct ConvGeometry {
    ConvAxis h, w;
    std::int64_t groups = 1;
};

// The three passes of a convolution: forward, gradient of the input, and gradient of the weight. x
// is [N, C, H, W], the weight w is [O, C / groups, KH, KW], and y is [N, O, R, Q]. R is floor((H +
// 2 padding - dilation (KH - 1) - 1) / stride) + 1, and Q is computed in the same way. With p =
// padding, s = stride, d = dilation, and c over the input channels of o's group:
//
//     y[n, o, r, q] = bias[o] + sum over c, i, j of w[o, c, i, j] x[n, c, r s - p + i d, ...]
//
// All sizes except N are positive. All operands have one dtype: f64, f32, f16 or bf16; 16-bit types
// are summed in f32 and rounded once. Any strides are supported; contiguous images and weights are
// fastest. The result must not overlap an operand. The order of summation depends on the shapes
// only, but cuDNN can use another order in every run unless `on` is deterministic. cuDNN can also
// round the sums before it adds the bias. bias, with one element per channel of the result, is
// absent if its view has no data.
//
// A Cpu uses Winograd's algorithm for 3 x 3 kernels with stride and dilation 1 if the sums are in
// f32, and a group has at least 16 input and 16 output channels (32 for the gradient of the
// weight), unless images are very wide. Infinite or very large operands can then give NaN instead
// of an infinity, and a NaN in x can make the gradients of all taps of a kernel NaN.
void conv2d(Cpu& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y);
void conv2d(Cuda& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y);

// Computes dx = bias (one per channel of x) + the transposed convolution of dy [N, O, R, Q].
// Elements of dx outside all windows become the bias, or 0 without bias. dx has x's shape.
void conv2d_transposed(Cpu& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx);
void conv2d_transposed(Cuda& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx);

// Computes dw[o, c, i, j] = sum over n, r, q of dy[n, o, r, q] x[n, c, r s - p + i d, ...].
void conv2d_weight_gradient(Cpu& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw);
void conv2d_weight_gradient(Cuda& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw);

}  // namespace axle::kernels
