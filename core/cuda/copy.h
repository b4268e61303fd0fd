// Private to core: elements from one device to another.
#pragma once

#include "core/tensor.h"

namespace axle::inline v0::cuda {

// y = x: contiguous, of one shape and dtype, at least one of them on a GPU. To a GPU the copy is
// queued on the current stream; from pinned memory it is waited for unless non_blocking. From a GPU
// it is waited for, and what kernels have found wrong is thrown.
void move_elements(const Tensor& x, Tensor& y, bool non_blocking);

}  // namespace axle::inline v0::cuda
