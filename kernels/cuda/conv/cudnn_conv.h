// Private to kernels: convolutions by cuDNN, which uses the tensor cores.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/conv.h"

namespace axle::kernels::cudnn {

// Compute the functions of kernels/ops/conv.h with cuDNN, for f32, f16 and bf16. Operands and
// results must not be empty. In conv2d_transposed, and in conv2d if cuDNN has no kernel for the
// bias, the bias is added to the rounded sums. Return false, without changing the result, if cuDNN
// is missing, has no kernel, or fails.
bool conv2d(Cuda& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y);
bool conv2d_transposed(Cuda& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx);
bool conv2d_weight_gradient(Cuda& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw);

// The tensor that is the result: y (forward), x (gradient of the input) or w (of the weight).
enum class ConvResult { y, x, w };
// The values of a convolution graph, numbered in the order of the enumerators.
struct ConvValues {
    enum : Value { x = 1, w, y, bias, sum };
};
// Returns the graph of one convolution. Only the alignment of the views' data is used, not the
// data. A bias is supported only if the result is y.
Graph conv_graph(ConvResult result, const ConstView& x, const ConstView& w, const ConstView& y,
                 const ConvGeometry& geometry, bool has_bias = false);
// Returns the restrictions on the engines that can compute a convolution of dtype t.
Limits conv_limits(DType t, bool deterministic, bool allow_tf32);

}  // namespace axle::kernels::cudnn
