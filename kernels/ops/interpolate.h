// Nearest-neighbor and bilinear resizing of planes, with PyTorch's coordinates.
//
// x is [.., H, W] with any strides. y is [.., Ho, Wo] and contiguous, and has x's leading
// dimensions and dtype (f64, f32, f16 or bf16; 16-bit types are computed in f32). x and y must not
// overlap. All sizes are positive.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// The mapping from output index o of an axis to the input, with r = 1 / scale, or r = in / out if
// scale is 0. Nearest-neighbor resizing reads element min(floor(o r), in - 1), or with `exact`,
// element min(floor((o + 1/2) r), in - 1); r and the argument of floor() are rounded to f32, as in
// PyTorch. Bilinear resizing interpolates at (o + 1/2) r - 1/2, clamped to the input. With
// align_corners, it interpolates at o (in - 1) / (out - 1), or at 0 if out is 1. An axis whose size
// does not change is copied, except with `exact` and a scale.
struct Resize {
    bool bilinear = false, align_corners = false, exact = false;
    double scale_h = 0, scale_w = 0;
};

void interpolate(Cpu& on, const Resize& resize, ConstView x, View y);
void interpolate(Cuda& on, const Resize& resize, ConstView x, View y);
// Computes dx, the gradient of the input, from dy. dy has y's shape and any strides; dx is
// contiguous [.., H, W], f64 for an f64 dy and f32 otherwise.
void interpolate_backward(Cpu& on, const Resize& resize, ConstView dy, View dx);
void interpolate_backward(Cuda& on, const Resize& resize, ConstView dy, View dx);

}  // namespace axle::kernels
