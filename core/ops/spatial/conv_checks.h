// Private to core: the checks of convolutions over one to three spatial dimensions.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle {

// The options of a convolution. Lists have one number for each spatial dimension.
struct ConvSizes {
    Dims stride, padding, dilation;
    std::int64_t groups = 1;
    Dims output_padding = {};  // only used by transposed convolutions
};

// Check the operands of a convolution or of a transposed convolution, and return the spatial sizes
// of the result. bias can be undefined. Throw the errors that core/functional.h documents.
Dims conv_size(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
               const ConvSizes& sizes);
Dims conv_transpose_size(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const ConvSizes& sizes);

}  // namespace axle
