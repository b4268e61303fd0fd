// Clipping of gradients, as torch.nn.utils has it. Parameters without a gradient are skipped; all
// gradients live on one device (DeviceError).
#pragma once

#include <vector>

#include "core/tensor.h"

namespace axle::inline v0::optim {

// Scales all gradients in place by min(1, max_norm / (norm + 1e-6)), where norm is that of all of
// them as one vector, and returns the norm before clipping: 0-d, f64 if a gradient is, else f32; 0
// where there is no gradient. Nothing is read on the host, unless error_if_nonfinite asks for a
// ValueError. norm_type is infinity or any number but 0 (ValueError).
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);

// The two halves of clip_grad_norm_, for norms that are put together across processes.
Tensor get_total_norm(const std::vector<Tensor>& params, double norm_type = 2);
void clip_grads_with_norm_(const std::vector<Tensor>& params, double max_norm,
                           const Tensor& total_norm);

// Limits every element of every gradient to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

// Multiplies every gradient by the factor, one f64 on their device, which isn't read on the host.
void scale_grads_(const std::vector<Tensor>& params, const Tensor& factor);

}  // namespace axle::inline v0::optim
