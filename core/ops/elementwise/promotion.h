// Conversions of the operands of elementwise ops.
#pragma once

#include "core/autograd/autocast.h"
#include "core/ops.h"

namespace axle {

// Returns x, converted to f32 if its dtype is integral, as in PyTorch.
inline Tensor as_floating(const Tensor& x) {
    return x.defined() && is_integral(x.dtype()) ? to(x, f32) : x;
}

// Returns x, converted to f32 if its dtype is integral, or if it is half precision and autocast is
// active. Used for functions that grow or shrink fast.
inline Tensor as_wide(const Tensor& x) { return autocast_to_f32(as_floating(x)); }

}  // namespace axle
