// Private to core: the recording of in-place ops.
#pragma once

#include <functional>

#include "core/tensor.h"

namespace axle::autograd {

// Returns whether an op that changes x in place must be recorded: ops are recorded, and x or an
// operand requires a gradient. If so, throws UsageError if x is a leaf that requires a gradient, or
// if other tensors share the memory of x, because their values would change, but not their history.
bool records_change(const char* op, const Tensor& x, bool operand_requires_grad);

// Gives x the values and the history of compute(before), where `before` has the values and the
// history of x. The result must have the shape and dtype of x and memory of its own. x gets this
// memory, so tensors that were saved for the backward pass keep the values of `before`.
void replace(const Tensor& x, const std::function<Tensor(const Tensor& before)>& compute);

}  // namespace axle::autograd
