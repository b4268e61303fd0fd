// A minimal PNG encoder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace axle::accel {

// Returns a PNG file of pixels in row-major order, [height, width, channels], 8 bits each: 1
// channel is gray, 2 gray with alpha, 3 RGB, 4 RGBA. Throws ValueError for other channels, for an
// empty image and for another number of bytes.
std::string encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                       std::int64_t width, int channels);

}  // namespace axle::accel
