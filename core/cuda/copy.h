// Private to core: copies of elements between devices.
#pragma once

#include "core/tensor.h"

namespace axle::cuda {

// Copies x to y. Both are contiguous with the same shape and dtype, and at least one is on a GPU. A
// copy to a GPU is queued on the current stream of this GPU. If x is in pinned memory and
// non_blocking is false, the call waits for the copy. A copy from a GPU to the CPU always waits. A
// call that waits throws the errors that kernels reported. A copy between the CPU and a GPU throws
// UsageError during a graph capture.
void move_elements(const Tensor& x, Tensor& y, bool non_blocking);

}  // namespace axle::cuda
