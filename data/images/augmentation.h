// Private to data: the operations of TrivialAugmentWide and RandAugment.
#pragma once

#include <cstdint>

#include "core/size2.h"
#include "data/images/byte_image.h"
#include "data/transforms.h"

namespace axle::data {

// The operations in the order of torchvision, which draws an index.
enum class AugmentationOp : std::uint8_t {
    identity,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    rotate,
    brightness,
    color,
    contrast,
    sharpness,
    posterize,
    solarize,
    auto_contrast,
    equalize,
};
inline constexpr std::int64_t kAugmentationOps = 14;

// The ranges of magnitudes: `wide` of TrivialAugmentWide, `narrow` of RandAugment.
enum class AugmentationSpace : std::uint8_t { narrow, wide };

// Returns the magnitude with an index in [0, bins) for an image of this size, as an f32: tangents
// of shears, pixels, degrees, factors - 1, bits, or the threshold of solarize divided by 255. It is
// 0 for operations without a magnitude.
double magnitude_of(AugmentationOp op, AugmentationSpace space, std::int64_t index,
                    std::int64_t bins, Size2 image);

// Returns whether the magnitude of an operation has a random sign.
bool is_signed(AugmentationOp op);

// Changes the image in place. The fraction of a number of pixels is dropped.
void augment(const ByteImage& image, AugmentationOp op, double magnitude);

}  // namespace axle::data
