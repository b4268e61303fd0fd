// Private to kernels: convolutions by cuDNN, which uses the tensor cores.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/conv.h"

namespace axle::inline v0::kernels::cudnn {

// As kernels/ops/conv.h says, for f32, f16 and bf16 and nonempty results and operands; but the bias
// of a transposed convolution is added to sums that have been rounded. False, and nothing is
// queued, where cuDNN is absent or has no kernel.
bool conv2d(Cuda& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y);
bool conv2d_transposed(Cuda& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx);
bool conv2d_weight_gradient(Cuda& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw);

// Which of the three tensors is the result.
enum class ConvResult { y, x, w };
// Values are numbered in the order of the enumerators.
struct ConvValues {
    enum : Value { x = 1, w, y, bias, sum };
};
// The graph of one convolution. The views' data count by their alignment only. y may have a bias.
Graph conv_graph(ConvResult result, const ConstView& x, const ConstView& w, const ConstView& y,
                 const ConvGeometry& geometry, bool has_bias = false);
// What its engines must keep to.
Limits conv_limits(DType t, bool deterministic, bool allow_tf32);

}  // namespace axle::inline v0::kernels::cudnn
