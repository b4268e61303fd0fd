// Rotary position embedding (Su et al., "RoFormer", 2021) in the half-split layout of Llama.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y[..., t, i] = x1 cos a - x2 sin a and y[..., t, i + D/2] = x2 cos a + x1 sin a, with x1
// = x[..., t, i] and x2 = x[..., t, i + D/2]. The angle a is direction (offset + t) base^(-2i / D).
//
// x and y are [..., T, D] with an even D and one floating dtype. They have any strides and can be
// the same view. direction is 1 or -1. Direction -1 inverts direction 1, and also computes its
// gradient.
void rotary(Cpu& on, double base, std::int64_t offset, int direction, ConstView x, View y);
void rotary(Cuda& on, double base, std::int64_t offset, int direction, ConstView x, View y);

}  // namespace axle::kernels
