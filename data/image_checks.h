// Private to data: the checks of operands that all image transforms share.
#pragma once

#include "core/tensor.h"
#include "kernels/error.h"

namespace axle::data {

// Throws UsageError for undefined images, DeviceError unless they are on the CPU, and ShapeError
// unless they have at least three dimensions. The messages name the transform `op`.
inline void check_images(const char* op, const Tensor& images) {
    if (!images.defined()) throw UsageError(str(op, ": the images are undefined"));
    if (!images.device().is_cpu())
        throw DeviceError(str(op, ": images must be on the CPU: they are on ", images.device()));
    if (images.dim() < 3)
        throw ShapeError(
            str(op, ": images must be [n, ..., height, width]: they are ", images.shape()));
}

}  // namespace axle::data
