// Gradient clipping, as in torch.nn.utils, and scale_grads_(). Parameters without a gradient are
// skipped. All functions throw DeviceError if the gradients are on several devices, and UsageError
// if a parameter is undefined. If parameters are sharded or slices, norms include the gradients of
// all processes that have a part. These processes must call clip_grad_norm_() and get_total_norm()
// together.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace axle::optim {

// Scales all gradients in place by min(1, max_norm / (norm + 1e-6)), where norm is the norm of all
// gradients as one vector. Returns the norm before clipping as a 0-d tensor, which is f64 if any
// gradient is f64, otherwise f32. Without gradients, the norm is 0. If error_if_nonfinite is true,
// waits for the device and throws ValueError if the norm is not finite; otherwise does not wait.
// Throws ValueError unless norm_type is positive infinity or a finite number other than 0.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);

// The two steps of clip_grad_norm_; between them, the caller may combine the norms of several
// processes. get_total_norm() returns the norm without waiting for the device, and throws
// ValueError for an invalid norm_type. clip_grads_with_norm_() scales the gradients, and throws
// ShapeError unless total_norm has one element.
Tensor get_total_norm(const std::vector<Tensor>& params, double norm_type = 2);
void clip_grads_with_norm_(const std::vector<Tensor>& params, double max_norm,
                           const Tensor& total_norm);

// Clamps every gradient element to [-clip_value, clip_value]. Throws ValueError if clip_value is
// negative or NaN.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

// Multiplies every gradient by the factor, an f64 tensor with one element on the device of the
// gradients. Does not wait for the device. Throws DTypeError if the factor has another dtype,
// ShapeError if it has another number of elements, and DeviceError if it is on another device.
void scale_grads_(const std::vector<Tensor>& params, const Tensor& factor);

}  // namespace axle::optim
