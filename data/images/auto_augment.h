// Random operations that need no tuning: TrivialAugmentWide and RandAugment.
//
//     data::Compose({data::RandomResizedCrop(224), data::RandomHorizontalFlip(),
//                    data::TrivialAugmentWide(), data::ToFloat(), data::Normalize(mean, std)})
//
// The operations are those of torchvision.transforms.v2: Identity, ShearX, ShearY, TranslateX,
// TranslateY, Rotate, Brightness, Color, Contrast, Sharpness, Posterize, Solarize, AutoContrast and
// Equalize. They use the nearest pixel, and pixels from outside the image are 0.
//
// Images are u8 [n, ..., c, height, width] with 1 or 3 channels, or [n, height, width], on the CPU,
// with sides of at most 4194303 and fewer than 2^31 pixels. The result has the same shape. Throw
// DTypeError, ShapeError or DeviceError for other images, and UsageError unless there is one
// SampleRandom per image. Several threads may call one transform concurrently.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "data/transforms.h"

namespace axle::data {

// Applies one random operation with a random magnitude (arXiv:2103.10158). The range of magnitudes
// is wide: for example, images are rotated by up to 135 degrees.
class TrivialAugmentWide {
  public:
    // Throws ValueError unless num_magnitude_bins is in [2, 2^20].
    explicit TrivialAugmentWide(std::int64_t num_magnitude_bins = 31);
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    std::int64_t bins_;
};

struct RandAugmentOptions {
    std::int64_t num_ops = 2;  // the number of operations for each image
    // The magnitude of all operations: an index in [0, num_magnitude_bins). The largest index is
    // the strongest change, for example a rotation by 30 degrees.
    std::int64_t magnitude = 9;
    std::int64_t num_magnitude_bins = 31;
};

// Applies several random operations with one magnitude (arXiv:1909.13719).
class RandAugment {
  public:
    // Throws ValueError unless num_ops is in [0, 1000], num_magnitude_bins in [2, 2^20], and
    // magnitude in [0, num_magnitude_bins).
    explicit RandAugment(RandAugmentOptions options = {});
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    RandAugmentOptions options_;
};

}  // namespace axle::data
