// Private to core: max pooling of integers.
#pragma once

#include <utility>

#include "core/ops/spatial/pool_checks.h"
#include "core/tensor.h"

namespace axle {

// Returns the maxima of the windows of planes x [.., H, W] (i64, i32 or u8) and their positions, as
// max_pool2d_with_indices() does. `out` is the size of the result.
std::pair<Tensor, Tensor> integer_max_pool2d(const Tensor& x, const PoolSizes& sizes,
                                             const Dims& out);

}  // namespace axle
