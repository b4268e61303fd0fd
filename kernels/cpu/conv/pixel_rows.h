// Convolutions of small images, computed as products of matrices whose rows are the pixels of all
// images. The images are copied with channels innermost, and unfolded if the kernel is larger than
// 1 x 1. In correlate(), the columns of a tile would be pixels of many images, in runs that are too
// short to be copied fast. The weight, which is larger, is read in place or packed by the product.
#pragma once

#include "kernels/ops/conv.h"

namespace axle::kernels {

// Returns whether pixel rows are supported and fast. x, w and y have the shapes of the
// convolution's operands.
bool suits_pixel_rows(const ConvGeometry& geometry, const ConstView& x, const ConstView& w,
                      const ConstView& y);

// Compute the three passes (see kernels/ops/conv.h); the gradient of the input without a bias.
void pixel_rows_forward(Cpu& on, const ConstView& x, const ConstView& w, const ConstView& bias,
                        const ConvGeometry& geometry, const View& y);
void pixel_rows_transposed(Cpu& on, const ConstView& dy, const ConstView& w,
                           const ConvGeometry& geometry, const View& dx);
void pixel_rows_weight(Cpu& on, const ConstView& dy, const ConstView& x,
                       const ConvGeometry& geometry, const View& dw);

}  // namespace axle::kernels
