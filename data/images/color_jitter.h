// ColorJitter and RandomGrayscale: random brightness, contrast, saturation and hue.
//
//     data::ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1})
#pragma once

#include <array>
#include <optional>
#include <span>

#include "core/tensor.h"
#include "data/transforms.h"

namespace axle::data {

// The range of a random factor.
struct JitterRange {
    // The range [max(0, 1 - strength), 1 + strength], or [-strength, strength] for the hue.
    JitterRange(double strength) : amount(strength) {}  // NOLINT(google-explicit-constructor)
    JitterRange(double low, double high) : range({low, high}) {}

    double amount = 0;
    std::optional<std::array<double, 2>> range = {};  // takes precedence over `amount`
};

// An amount of 0 means no change. Factors are multiples of the image's own brightness, contrast and
// saturation, and fractions of a turn for the hue.
struct ColorJitterOptions {
    JitterRange brightness = 0;
    JitterRange contrast = 0;
    JitterRange saturation = 0;
    JitterRange hue = 0;
};

// Changes brightness, contrast, saturation and hue by uniformly random factors, in a random order.
// Bytes equal the bytes of ColorJitter in torchvision.transforms.v2 for the same factors and order.
// Saturation and hue of gray images are not changed.
//
// Images are u8 [n, ..., c, height, width] with 1 or 3 channels, or [n, height, width], on the CPU.
// Throws DTypeError, ShapeError or DeviceError for other images, and UsageError unless there is one
// SampleRandom per image. Several threads may call one transform concurrently.
class ColorJitter {
  public:
    // Throws ValueError unless amounts are at least 0, the range of the hue is in [-0.5, 0.5], and
    // the other ranges are in [0, 1e6], the smaller number first.
    explicit ColorJitter(ColorJitterOptions options);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    // The ranges of brightness, contrast, saturation and hue; nullopt if a factor is not drawn.
    std::array<std::optional<std::array<double, 2>>, 4> ranges_;
};

// Replaces the colors of an image by their brightness with probability p, and keeps the number of
// channels. Images and errors are those of ColorJitter.
class RandomGrayscale {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit RandomGrayscale(double p = 0.1);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    double p_;
};

}  // namespace axle::data
