// Training data of the programs in this folder: small drawings, and a file with a grid of images.
#pragma once

#include <fstream>
#include <string>
#include <utility>

#include <axle/accel/tracking/image.h>
#include <axle/accel/tracking/png.h>
#include <axle/axle.h>

// Returns images [count, 1, size, size] of a disc or a square of random size and position, with
// values from 0 to 1. Also returns their kinds (i64) [count]: 0 for discs and 1 for squares.
inline std::pair<axle::Tensor, axle::Tensor> drawings(std::int64_t count, std::int64_t size) {
    using axle::Tensor;
    const axle::Shape one_number{count, 1, 1, 1};
    const Tensor kinds = axle::randint(0, 2, {count});
    const Tensor radius = (axle::rand(one_number) * 0.14 + 0.16) * size;
    const Tensor pixels = axle::arange(size, {.dtype = axle::f32});
    const auto center = [&] { return (axle::rand(one_number) * 0.2 + 0.4) * (size - 1); };
    const Tensor dx = abs(pixels - center());
    const Tensor dy = abs(pixels.view({size, 1}) - center());
    const Tensor to_disc = (dx * dx + dy * dy).sqrt(), to_square = maximum(dx, dy) * 1.1;
    const Tensor distance = where(kinds.view(one_number) == 0, to_disc, to_square);
    return {sigmoid((radius - distance) * 3), kinds};
}

// Writes images [N, 1, H, W] with values from 0 to 1 to a PNG file.
inline void save_image(const axle::Tensor& images, const std::string& path) {
    const axle::accel::Image image = axle::accel::to_image(images);
    std::ofstream(path, std::ios::binary)
        << axle::accel::encode_png(image.pixels, image.height, image.width, image.channels);
}
