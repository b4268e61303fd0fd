// Image transforms for images of different sizes: Resize and RandomResizedCrop. CenterCrop is in
// data/transforms.h.
//
//     const auto train = data::TransformedDataset(
//         data::ImageFolder("train"),
//         data::Compose({data::RandomResizedCrop(224), data::RandomHorizontalFlip(),
//                        data::ToFloat(), data::Normalize(mean, std)}),
//         {.seed = 1});
//     const auto test = data::TransformedDataset(
//         data::ImageFolder("test"), data::Compose({data::Resize(256), data::CenterCrop(224),
//                                                   data::ToFloat(), data::Normalize(mean, std)}));
//
// The transforms in this file need u8 images [n, ..., height, width] on the CPU, with positive
// height and width, and return u8 images [n, ..., new height, new width]. They throw DTypeError,
// DeviceError or ShapeError for other images, and UsageError for undefined images. Several threads
// may call one transform concurrently. For floating images, see interpolate() in core/functional.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "core/functional.h"
#include "core/size2.h"
#include "core/tensor.h"
#include "data/image_window.h"
#include "data/transforms.h"

namespace axle::data {

// The largest number of pixels that Resize computes for an image, which the sizes of images from
// outside may determine.
inline constexpr std::int64_t kMaxResizedPixels = 178956970;

// Resizes images with the filters bilinear (as in torchvision) or bicubic. A smaller image uses all
// pixels (antialias). Pixels equal Image.resize of Pillow 13. Older versions round some pixels of
// images that shrink mostly in height in another way, and differ by 1.
class Resize {
  public:
    // Makes the shorter side `shorter_side` pixels long, and keeps the aspect ratio, as in
    // torchvision: the longer side is rounded down. Throws ValueError unless the side is in
    // [1, 2^31) and the filter is bilinear or bicubic.
    explicit Resize(std::int64_t shorter_side, Interpolation filter = Interpolation::bilinear);
    // Resizes images to `size`. Throws the errors above.
    explicit Resize(Size2 size, Interpolation filter = Interpolation::bilinear);
    // Throws ShapeError if a resized image has more than kMaxResizedPixels.
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random = {}) const;
    // Returns the size to which an image is resized, whose sides must be positive.
    Size2 size_for(Size2 image) const;

  private:
    std::int64_t shorter_side_ = 0;  // 0 if size_ is set
    Size2 size_;
    Interpolation filter_;
};

struct RandomResizedCropOptions {
    // The range of the area of the crop, as a fraction of the image.
    std::array<double, 2> scale = {0.08, 1};
    // The range of the crop's width divided by its height.
    std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};
    Interpolation filter = Interpolation::bilinear;
};

// Crops a random window of random size, and resizes it to `size`. As in torchvision, up to ten
// windows are drawn; if none fits into the image, the window is the largest one at the center with
// a permitted ratio.
class RandomResizedCrop {
  public:
    // Throws ValueError unless both sides are in [1, 2^31) and their product is at most
    // kMaxResizedPixels, 0 < range[0] <= range[1] <= 1e6 for both ranges, and the filter is
    // bilinear or bicubic.
    explicit RandomResizedCrop(Size2 size, RandomResizedCropOptions options = {});
    // Throws UsageError unless there is one SampleRandom per image.
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;
    // The two steps of the operator: draw the window of an image, whose sides must be positive, and
    // resize windows that have been cropped, which throws the errors of the operator.
    ImageWindow window(Size2 image, SampleRandom& random) const;
    Tensor resize(const Tensor& windows) const;

  private:
    Size2 size_;
    RandomResizedCropOptions options_;
};

}  // namespace axle::data
