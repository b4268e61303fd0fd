// A minimal PNG encoder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace axle::accel {

// Encodes pixels in row-major order, [height, width, channels], with 8 bits per channel, and
// returns the bytes of the PNG file. The channels are gray (1), gray and alpha (2), RGB (3) or RGBA
// (4). Throws ValueError for other numbers of channels, for an empty image or a side above 2^31 -
// 1, and if the number of bytes does not match the size.
std::string encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                       std::int64_t width, int channels);

}  // namespace axle::accel
