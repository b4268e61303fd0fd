// GaussianBlur: blurs images with a random strength.
//
//     data::Compose({data::RandomResizedCrop(224), data::GaussianBlur(23, {0.1, 2}),
//                    data::ToFloat(), data::Normalize(mean, std)})
#pragma once

#include <array>
#include <span>

#include "core/size2.h"
#include "core/tensor.h"
#include "data/transforms.h"

namespace axle::data {

// Blurs an image with a Gaussian kernel whose standard deviation sigma is uniformly random. The
// border is reflected without repeating the outermost pixels. Bytes equal the bytes of GaussianBlur
// in torchvision.transforms.v2 for the same sigma on a CPU with FMA instructions, with one
// exception: about one in a million bytes differs by 1, because the last bits of torchvision's
// weights depend on the machine.
//
// Images are u8 [n, ..., c, height, width] with 1 or 3 channels, or [n, height, width], on the CPU.
// Throws DTypeError, ShapeError or DeviceError for other images, and UsageError unless there is one
// SampleRandom per image. Several threads may call one transform concurrently.
class GaussianBlur {
  public:
    // `kernel_size` is the height and width of the kernel in pixels; torchvision's lists begin with
    // the width. `sigma` is the range of the standard deviation, in pixels, the smaller number
    // first. Throws ValueError unless both sizes are odd and in [1, 65535], and 0 < sigma[0] <=
    // sigma[1] <= 1e6.
    explicit GaussianBlur(Size2 kernel_size, std::array<double, 2> sigma = {0.1, 2.0});
    // Throws ShapeError if half of a kernel's side, rounded down, is not smaller than the image's
    // side.
    Tensor operator()(const Tensor& images, std::span<SampleRandom> random) const;

  private:
    Size2 kernel_size_;
    std::array<double, 2> sigma_;
};

}  // namespace axle::data
