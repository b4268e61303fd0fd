// Compiled without fused multiply-add, as byte_image.cpp.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "data/images/byte_image.h"

namespace axle::data {
namespace {

using Floats = float[kPixelBlock];

// Returns `yes` or `no` without a branch, so that the compiler can vectorize loops.
float select(bool condition, float yes, float no) {
    const std::int32_t mask = -static_cast<std::int32_t>(condition);
    return std::bit_cast<float>((std::bit_cast<std::int32_t>(yes) & mask) |
                                (std::bit_cast<std::int32_t>(no) & ~mask));
}

// Returns x - 1 for x from 1 to 2, and x for smaller numbers.
float wrapped(float x) { return select(x >= 1.0f, x - 1.0f, x); }

float clamp_unit(float x) { return std::min(std::max(x, 0.0f), 1.0f); }

void to_floats(const std::uint8_t (&bytes)[kPixelBlock], Floats& to) {
    for (int i = 0; i < kPixelBlock; ++i)
        to[i] = static_cast<float>(bytes[i]) * static_cast<float>(1.0 / 255);
}

void to_bytes(const Floats& from, std::uint8_t (&bytes)[kPixelBlock]) {
    for (int i = 0; i < kPixelBlock; ++i)
        bytes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(from[i] * 255.999f));
}

// Converts to HSV and back with the operations of torchvision, each of which rounds to f32.
void rotate_hue(Floats& red, Floats& green, Floats& blue, float turn) {
    for (int i = 0; i < kPixelBlock; ++i) {
        const float r = red[i], g = green[i], b = blue[i];
        const float least = std::min(std::min(r, g), b), value = std::max(std::max(r, g), b);
        const float range = value - least;
        const float saturation = range / select(range == 0.0f, 1.0f, value);
        const float divisor = select(range == 0.0f, 1.0f, range);
        const float rc = (value - r) / divisor, gc = (value - g) / divisor,
                    bc = (value - b) / divisor;
        float hue = select(value == g, rc + 2.0f - bc, gc + 4.0f - rc);
        hue = select(value == r, bc - gc, hue);
        hue = wrapped(hue * static_cast<float>(1.0 / 6.0) + 1.0f);
        hue = wrapped(hue + turn);
        hue = select(hue < 0.0f, hue + 1.0f, hue);

        const float sixths = hue * 6.0f;
        const float whole = static_cast<float>(static_cast<std::int32_t>(sixths));
        const float fraction = sixths - whole, sxf = saturation * fraction;
        const float rest = 1.0f - saturation;
        const float q = clamp_unit((1.0f - sxf) * value), t = clamp_unit((sxf + rest) * value),
                    p = clamp_unit(rest * value);
        // A channel is `value`, q, p, p, t and `value` in the sectors 0 to 5. Sector 6 is sector 0,
        // and the other channels are two sectors before and after red.
        const auto channel = [&](float sector) {
            sector = select(sector >= 6.0f, sector - 6.0f, sector);
            float x = select(sector == 1.0f, q, p);
            x = select(sector == 4.0f, t, x);
            x = select(sector == 0.0f, value, x);
            return select(sector == 5.0f, value, x);
        };
        red[i] = channel(whole);
        green[i] = channel(whole + 4.0f);
        blue[i] = channel(whole + 2.0f);
    }
}

}  // namespace

void adjust_hue(const ByteImage& image, double factor) {
    if (image.channels == 1) return;
    for_each_block(image, [&](auto& red, auto& green, auto& blue) {
        Floats r, g, b;
        to_floats(red, r), to_floats(green, g), to_floats(blue, b);
        rotate_hue(r, g, b, static_cast<float>(factor));
        to_bytes(r, red), to_bytes(g, green), to_bytes(b, blue);
    });
}

}  // namespace axle::data
