// Gradient clipping, as in torch.nn.utils. Parameters without a gradient are skipped. All gradients
// must be on one device (DeviceError).
#pragma once

#include <vector>

#include "core/tensor.h"

namespace axle::optim {

// Scales all gradients in place by min(1, max_norm / (norm + 1e-6)), where norm is the norm of all
// gradients as one vector. Returns the norm before clipping: 0-d, f64 if any gradient is f64, else
// f32; 0 if there is no gradient. If error_if_nonfinite is true, synchronizes with the device and
// throws ValueError for a norm that is not finite; otherwise does not synchronize. norm_type is
// infinity or any number except 0 (ValueError).
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);

// The two steps of clip_grad_norm_, for norms that are combined across processes in between.
Tensor get_total_norm(const std::vector<Tensor>& params, double norm_type = 2);
void clip_grads_with_norm_(const std::vector<Tensor>& params, double max_norm,
                           const Tensor& total_norm);

// Clamps every gradient element to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

// Multiplies every gradient by the factor, an f64 scalar on the device of the gradients. Does not
// synchronize with the device.
void scale_grads_(const std::vector<Tensor>& params, const Tensor& factor);

}  // namespace axle::optim
