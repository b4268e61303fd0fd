// RandomErasing: overwrites a random rectangle of an image.
//
//     data::Compose({data::RandomHorizontalFlip(), data::ToFloat(), data::Normalize(mean, std),
//                    data::RandomErasing({.p = 0.25})})
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "data/transforms.h"

namespace axle::data {

struct RandomErasingOptions {
    double p = 0.5;  // the probability that an image is changed
    // The range of the area of the rectangle, as a fraction of the image.
    std::array<double, 2> scale = {0.02, 0.33};
    // The range of the rectangle's height divided by its width.
    std::array<double, 2> ratio = {0.3, 3.3};
    // The new value of the pixels: one number, or one for each channel.
    std::vector<double> value = {0};
    // If true, each pixel gets a random number, and `value` is ignored: a standard normal number,
    // or a uniformly random byte in u8 images.
    bool random = false;
};

// Overwrites a random rectangle of an image (arXiv:1708.04896). As in torchvision, up to ten
// rectangles are drawn. If none is smaller than the image in both directions, nothing is erased.
//
// Images are u8, f32 or f64 [n, ..., c, height, width], or [n, height, width], on the CPU. Throws
// DTypeError, ShapeError or DeviceError for other images, and UsageError unless there is one
// SampleRandom per image. Several threads may call one transform concurrently.
class RandomErasing {
  public:
    // Throws ValueError unless p is in [0, 1], 0 <= scale[0] <= scale[1] <= 1,
    // 0 < ratio[0] <= ratio[1] <= 1e6, and there is a value.
    explicit RandomErasing(RandomErasingOptions options = {});
    // Throws ShapeError if there are several values, but not one for each channel, and ValueError
    // for u8 images if a value is not in [0, 255].
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    RandomErasingOptions options_;
};

}  // namespace axle::data
