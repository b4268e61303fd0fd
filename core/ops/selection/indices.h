// Private to core: checks and conversions of indices that several sources of index ops share.
#pragma once

#include <string>
#include <vector>

#include "core/ops.h"
#include "kernels/error.h"

namespace axle {

// Throws ShapeError unless the index of gather or scatter has as many dimensions as x. Also throws
// ShapeError if the index is larger than x in a dimension other than `dim` (-1 for no exception).
void check_fits(const char* op, int dim, const Tensor& index, const Tensor& x);

inline Tensor at_least_1d(const Tensor& x) { return x.dim() == 0 ? reshape(x, {1}) : x; }

// Expands a 1-d index of slices along dim to `shape`.
Tensor broadcast_index(const Tensor& index, int dim, const Shape& shape);

// Returns the positions of true: one i64 vector for each dimension of the mask. Waits for a GPU,
// and throws DeviceError on the meta device.
std::vector<Tensor> positions_of_true(const char* op, const Tensor& mask);

// Returns an index into dimension `dim` of `shape` as i64, with negative values counted from the
// end. Throws IndexError for values out of range: on a CPU immediately, on a GPU asynchronously.
Tensor wrapped_index(const char* op, const Tensor& index, const Shape& shape, int dim);

// Does the work of x.index_put_(indices, value, accumulate). Errors name the op `op`.
void put_values(const char* op, const Tensor& x, const std::vector<TensorIndex>& indices,
                const Tensor& value, bool accumulate);

}  // namespace axle
