// Private to kernels: pooling by cuDNN.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/pool.h"

namespace axle::inline v0::kernels::cudnn {

// As kernels/ops/pool.h says. False, and nothing is queued, where cuDNN is absent or the call does
// not suit it: it takes f32, f16 and bf16 planes that lie dense in row-major order, windows of one
// size without holes, the usual divisors, and enough elements to be worth a plan.
//
// Maxima are only without their places, so not where a gradient will be asked for: cuDNN's places
// are 8 bits of the window, and which of equal maxima, or of NaNs, it takes is nowhere written,
// where the first (and the last NaN) is the rule here. Gradients of means are only of f32: those of
// 16-bit numbers are sums in f32, and cuDNN's have one dtype.
bool max_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y);
bool avg_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y);
bool avg_pool2d_backward(Cuda& on, const Pool& pool, const ConstView& dy, const View& dx);

enum class PoolResult { maximum, mean, mean_gradient };
// Values are numbered in the order of the enumerators; a gradient goes from y to x.
struct PoolValues {
    enum : Value { x = 1, y };
};
// Whether windows that cut `y` from `x` follow rules that cuDNN has.
bool has_pool_rules(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y);
// The graph of a pooling that does. The views' data count by their alignment only.
Graph pool_graph(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y);

}  // namespace axle::inline v0::kernels::cudnn
