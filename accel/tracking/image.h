// Converts tensors to images.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace axle::accel {

// An image: pixels in row-major order, [height, width, channels], with 8 bits per channel.
struct Image {
    std::int64_t height = 0, width = 0;
    int channels = 0;
    std::vector<std::uint8_t> pixels = {};
};

// Converts a tensor to an image. Integer tensors have values from 0 to 255; floating-point and bool
// tensors have values from 0 to 1. Values outside of this range are clamped, and NaN becomes 0.
// `dataformats` names the dimensions in order with the letters N, C, H and W, as in "HWC"; the
// default is "NCHW", "CHW" or "HW", depending on the number of dimensions. Several images (N) are
// arranged in a grid with up to eight columns, as in PyTorch's SummaryWriter. Throws ValueError for
// other or repeated letters. Throws ShapeError if the tensor does not match `dataformats`, is
// empty, or has more than 4 channels, or if `dataformats` lacks H or W.
Image to_image(const Tensor& tensor, std::string_view dataformats = {});

}  // namespace axle::accel
