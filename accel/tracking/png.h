// PNG images, as far as metrics need them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace axle::accel {

// A PNG file of pixels in row-major order, [height, width, channels], eight bits each: 1 channel is
// grey, 2 grey with alpha, 3 RGB, 4 RGBA. ValueError for other channels, for an empty image and for
// another number of bytes.
std::string encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                       std::int64_t width, int channels);

}  // namespace axle::accel
