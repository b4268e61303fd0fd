// Resizing planes by the nearest or by the four nearest elements, with PyTorch's coordinates.
//
// x is [.., H, W] with any strides, y is [.., Ho, Wo] with the same leading dimensions, contiguous
// and of x's dtype (f64 f32 f16 bf16; halves are computed in f32). They must not overlap. No size
// is 0.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// Where output o of an axis looks in the input, with r = in / out or 1 / scale where scale isn't 0:
// nearest takes element floor(o r), in single precision as PyTorch does; bilinear blends the two
// around (o + 1/2) r - 1/2, or with align_corners around o (in - 1) / (out - 1), cut to the input.
// An axis that keeps its size is left as it is.
struct Resize {
    bool bilinear = false, align_corners = false;
    double scale_h = 0, scale_w = 0;
};

void interpolate(Cpu& on, const Resize& resize, ConstView x, View y);
void interpolate(Cuda& on, const Resize& resize, ConstView x, View y);
// dx = the transposed map of dy. dy has y's shape and any strides, dx is contiguous [.., H, W], f64
// for an f64 dy and f32 otherwise.
void interpolate_backward(Cpu& on, const Resize& resize, ConstView dy, View dx);
void interpolate_backward(Cuda& on, const Resize& resize, ConstView dy, View dx);

}  // namespace axle::inline v0::kernels
