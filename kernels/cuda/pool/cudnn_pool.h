// Private to kernels: pooling by cuDNN.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/pool.h"

namespace axle::kernels::cudnn {

// Implement kernels/ops/pool.h. Return false, without queueing anything, if cuDNN is missing or
// does not support the call. It supports f32, f16 and bf16 planes that are dense and row-major,
// windows of one size without dilation, the usual divisors, and only calls with enough elements to
// justify a plan.
//
// Maxima are supported without indices only, and therefore not if a gradient is required. cuDNN's
// indices are 8 bits within the window, and it does not document which of several equal maxima or
// NaNs it selects, whereas Axle selects the first maximum and the last NaN. Gradients of means are
// supported for f32 only. For 16-bit dtypes they are f32 sums in Axle, but cuDNN requires one
// dtype.
bool max_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y);
bool avg_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y);
bool avg_pool2d_backward(Cuda& on, const Pool& pool, const ConstView& dy, const View& dx);

enum class PoolResult { maximum, mean, mean_gradient };
// Values are numbered in the order of the enumerators; a gradient is computed from y to x.
struct PoolValues {
    enum : Value { x = 1, y };
};
// Returns whether cuDNN supports the windows that map `x` to `y`.
bool has_pool_rules(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y);
// Returns the graph of a supported pooling. Only the alignment of the views' data is used.
Graph pool_graph(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y);

}  // namespace axle::kernels::cudnn
