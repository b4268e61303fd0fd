#include "data/images/auto_augment.h"

#include <algorithm>
#include <cmath>

#include "data/images/augmentation.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::int64_t kMostBins = std::int64_t{1} << 20;

void check_bins(const char* op, std::int64_t bins) {
    if (bins < 2 || bins > kMostBins)
        throw ValueError(str(op, ": num_magnitude_bins must be in [2, ", kMostBins, "]: ", bins));
}

void check_size(const char* op, const Tensor& images) {
    const Size2 size = {images.size(-2), images.size(-1)};
    if (std::max(size.h, size.w) > kLongestWarpedSide || size.h * size.w >> 31 != 0)
        throw ShapeError(str(op, ": images must have sides of at most ", kLongestWarpedSide,
                             " and fewer than 2^31 pixels: they are ", images.shape()));
}

AugmentationOp draw_op(SampleRandom& draw) {
    return static_cast<AugmentationOp>(draw.below(kAugmentationOps));
}

// Applies an operation with the magnitude at `index`, and a random sign if it has one.
void apply(ByteImages& images, std::int64_t i, AugmentationOp op, double magnitude,
           SampleRandom& draw) {
    if (is_signed(op) && draw.uniform() <= 0.5f) magnitude = -magnitude;
    images.each(i, [&](const ByteImage& image) { augment(image, op, magnitude); });
}

}  // namespace

double magnitude_of(AugmentationOp op, AugmentationSpace space, std::int64_t index,
                    std::int64_t bins, Size2 image) {
    const bool wide = space == AugmentationSpace::wide;
    const double part = static_cast<double>(index) / static_cast<double>(bins - 1);
    const auto up_to = [&](double end) {
        return static_cast<double>(static_cast<float>(end * part));
    };
    const double most_pixels = 150.0 / 331.0;  // of a side
    switch (op) {
        case AugmentationOp::shear_x:
        case AugmentationOp::shear_y:
            return up_to(wide ? 0.99 : 0.3);
        case AugmentationOp::translate_x:
            return up_to(wide ? 32 : most_pixels * static_cast<double>(image.w));
        case AugmentationOp::translate_y:
            return up_to(wide ? 32 : most_pixels * static_cast<double>(image.h));
        case AugmentationOp::rotate:
            return up_to(wide ? 135 : 30);
        case AugmentationOp::brightness:
        case AugmentationOp::color:
        case AugmentationOp::contrast:
        case AugmentationOp::sharpness:
            return up_to(wide ? 0.99 : 0.9);
        case AugmentationOp::posterize:
            return std::nearbyint(8 - up_to(wide ? 6 : 4));
        case AugmentationOp::solarize:
            return static_cast<double>(static_cast<float>(1 - part));
        case AugmentationOp::identity:
        case AugmentationOp::auto_contrast:
        case AugmentationOp::equalize:
            return 0;
    }
    return 0;
}

bool is_signed(AugmentationOp op) {
    return op >= AugmentationOp::shear_x && op <= AugmentationOp::sharpness;
}

void augment(const ByteImage& image, AugmentationOp op, double magnitude) {
    switch (op) {
        case AugmentationOp::identity:
            return;
        case AugmentationOp::shear_x:
            return shear_x(image, magnitude);
        case AugmentationOp::shear_y:
            return shear_y(image, magnitude);
        case AugmentationOp::translate_x:
            return translate(image, static_cast<std::int64_t>(magnitude), 0);
        case AugmentationOp::translate_y:
            return translate(image, 0, static_cast<std::int64_t>(magnitude));
        case AugmentationOp::rotate:
            return rotate(image, magnitude);
        case AugmentationOp::brightness:
            return adjust_brightness(image, 1 + magnitude);
        case AugmentationOp::color:
            return adjust_saturation(image, 1 + magnitude);
        case AugmentationOp::contrast:
            return adjust_contrast(image, 1 + magnitude);
        case AugmentationOp::sharpness:
            return adjust_sharpness(image, 1 + magnitude);
        case AugmentationOp::posterize:
            return posterize(image, static_cast<int>(magnitude));
        case AugmentationOp::solarize:
            return solarize(image, 255 * magnitude);
        case AugmentationOp::auto_contrast:
            return autocontrast(image);
        case AugmentationOp::equalize:
            return equalize(image);
    }
}

TrivialAugmentWide::TrivialAugmentWide(std::int64_t num_magnitude_bins)
    : bins_(num_magnitude_bins) {
    check_bins("TrivialAugmentWide", bins_);
}

Tensor TrivialAugmentWide::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    ByteImages result("TrivialAugmentWide", images, random);
    check_size("TrivialAugmentWide", images);
    if (result.empty()) return result.tensor();
    for (std::int64_t i = 0; i < std::ssize(random); ++i) {
        SampleRandom& draw = random[static_cast<std::size_t>(i)];
        const AugmentationOp op = draw_op(draw);
        const std::int64_t index = draw.below(bins_);
        apply(result, i, op, magnitude_of(op, AugmentationSpace::wide, index, bins_, result.size()),
              draw);
    }
    return result.tensor();
}

RandAugment::RandAugment(RandAugmentOptions options) : options_(options) {
    check_bins("RandAugment", options.num_magnitude_bins);
    if (options.num_ops < 0 || options.num_ops > 1000)
        throw ValueError(str("RandAugment: num_ops must be in [0, 1000]: ", options.num_ops));
    if (options.magnitude < 0 || options.magnitude >= options.num_magnitude_bins)
        throw ValueError(str("RandAugment: magnitude must be in [0, num_magnitude_bins): it is ",
                             options.magnitude, ", num_magnitude_bins is ",
                             options.num_magnitude_bins));
}

Tensor RandAugment::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    ByteImages result("RandAugment", images, random);
    check_size("RandAugment", images);
    if (result.empty()) return result.tensor();
    for (std::int64_t i = 0; i < std::ssize(random); ++i) {
        SampleRandom& draw = random[static_cast<std::size_t>(i)];
        for (std::int64_t k = 0; k < options_.num_ops; ++k) {
            const AugmentationOp op = draw_op(draw);
            apply(result, i, op,
                  magnitude_of(op, AugmentationSpace::narrow, options_.magnitude,
                               options_.num_magnitude_bins, result.size()),
                  draw);
        }
    }
    return result.tensor();
}

}  // namespace axle::data
