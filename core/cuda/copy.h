// Private to core: copies of elements between devices.
#pragma once

#include "core/tensor.h"

namespace axle::cuda {

// Copies x to y: contiguous, same shape and dtype, at least one of them on a GPU. A copy to a GPU
// is queued on the current stream; from pinned memory the call waits for it unless non_blocking. A
// copy from a GPU always waits, and errors that kernels reported are thrown.
void move_elements(const Tensor& x, Tensor& y, bool non_blocking);

}  // namespace axle::cuda
