// Pixels out of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace axle::accel {

// Row-major [height, width, channels], eight bits each.
struct Image {
    std::int64_t height = 0, width = 0;
    int channels = 0;
    std::vector<std::uint8_t> pixels = {};
};

// Integer tensors hold 0 to 255, others 0 to 1; what lies beyond is clamped, NaN is black.
// `dataformats` names the dimensions in their order, each of H, W, C and N at most once, as in
// "HWC"; empty means "NCHW", "CHW" or "HW", whichever has as many. Several images (N) become one, a
// grid of up to eight beside each other, as PyTorch's SummaryWriter arranges them. ValueError for
// other names, ShapeError where the tensor doesn't fit them, has no pixels or not 1 to 4 channels.
Image to_image(const Tensor& tensor, std::string_view dataformats = {});

}  // namespace axle::accel
