// Private to kernels: pooling by cuDNN.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/pool.h"

namespace axle::kernels::cudnn {

// Compute the functions of kernels/ops/pool.h with cuDNN. Return false, without changing the
// result, if cuDNN is missing, does not support the call or fails. The planes of a supported call
// are f32, f16 or bf16, dense and row-major; the windows have one size and no dilation; and x has
// enough elements to justify a plan, but fewer than 2^31. For means, Pool::divisor must be 0, and
// if padding is counted, no window may extend beyond the padding.
//
// max_pool2d does not compute indices, so it cannot be used if a gradient is required. cuDNN's
// indices are 8-bit positions in the window. cuDNN does not document which of several equal maxima
// or NaNs it selects, but Axle must select the first maximum and the last NaN. Gradients of means
// are supported for f32 only: for 16-bit dtypes, Axle returns f32 sums, but cuDNN requires one
// dtype.
bool max_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y);
bool avg_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y);
bool avg_pool2d_backward(Cuda& on, const Pool& pool, const ConstView& dy, const View& dx);

enum class PoolResult { maximum, mean, mean_gradient };
// The values of a pooling graph, numbered in the order of the enumerators. In the graph of a
// gradient, y is the input and x is the result.
struct PoolValues {
    enum : Value { x = 1, y };
};
// Returns whether cuDNN supports the windows of a pooling of x to y.
bool has_pool_rules(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y);
// Returns the graph of a supported pooling. Only the alignment of the views' data is used, not the
// data.
Graph pool_graph(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y);

}  // namespace axle::kernels::cudnn
