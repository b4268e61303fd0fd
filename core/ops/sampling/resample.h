// Private to core/ops/sampling: bicubic and antialiased resizing along one dimension, and the
// polynomials of bicubic weights.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle {

// The resizing of one dimension.
struct Resampling {
    std::int64_t in = 0, out = 0;
    double scale = 0;  // as kernels::Resize::scale_h
    bool align_corners = false;
    bool cubic = false;      // otherwise linear, which needs antialias
    bool antialias = false;  // whether a reduction widens the filter by its factor
};

// Returns x resized along dim, which is -1 or -2. x is f32 or f64, with two or more dimensions.
// Each new element is a weighted sum of neighbors, with PyTorch's weights.
Tensor resample(const Tensor& x, int dim, const Resampling& resampling);

// Return the weights of elements in cubic convolution with the parameter a. near_cubic() is for a
// distance x below 1, and far_cubic() for a distance from 1 to 2. PyTorch's bicubic modes have a =
// -0.75, and a = -0.5 if antialias is true. See Keys, IEEE Transactions on Acoustics, Speech, and
// Signal Processing, 1981.
Tensor near_cubic(const Tensor& x, double a);
Tensor far_cubic(const Tensor& x, double a);

}  // namespace axle
