// Decodes JPEG and PNG images.
//
//     const Tensor color = data::read_image("cat.jpg");                                // [3, H, W]
//     const Tensor gray = data::read_image("7.png", {.mode = data::ImageMode::gray});  // [1, H, W]
//
// JPEG needs libjpeg-turbo and PNG needs libpng. Both are optional: a build of Axle without the
// library of a format throws UsageError for its images, and only programs that call these functions
// link the libraries (docs/installation.md).
//
// Pixels equal the pixels of torchvision.io.decode_image with the same mode and the same versions
// of the libraries:
// - Images are not rotated: the EXIF orientation is ignored, as in torchvision's ImageFolder.
// - An alpha channel and transparent colors are dropped, not blended with a background.
// - PNG images with 16 bits per channel keep the upper 8 bits, as in Pillow.
// - Gray pixels of a JPEG are its luma, and gray pixels of a color PNG are
//   0.2989 R + 0.587 G + 0.1141 B.
// - CMYK JPEGs are read as inverted, as Adobe's programs write them.
// - A JPEG that is complete but has damaged pixels is decoded as libjpeg-turbo repairs it. A PNG
//   with a damaged header, palette or pixels is an error; damaged contents of other chunks are
//   ignored.
// - A truncated image is an error. So is a JPEG with more than 100 scans, because each scan can
//   take as long as an image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace axle::data {

enum class ImageMode : std::uint8_t { rgb, gray };

struct DecodeOptions {
    ImageMode mode = ImageMode::rgb;
    // The largest number of pixels. The default is the limit of Pillow's DecompressionBombError.
    // Decoding needs up to about 12 bytes of memory per pixel.
    std::int64_t max_pixels = 178956970;
    std::int64_t max_bytes = std::int64_t{1} << 30;  // the largest size of the encoded image
};

enum class ImageFormat : std::uint8_t { jpeg, png };

// Returns whether this build of Axle contains the decoder of a format.
bool can_decode(ImageFormat format);

// Return the pixels of an image as a u8 tensor [C, H, W] on the CPU, with three channels (rgb) or
// one (gray). The first bytes determine the format, and the name does not matter. Throw FileError
// with the name and the reason if the image is truncated, damaged, in another format, or larger
// than a limit; UsageError if this build cannot decode the format; and ValueError unless both
// limits are positive. Several threads may call these functions concurrently.
//
// `name` is the path for messages.
Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    const DecodeOptions& options = {});
// Also throws FileError if the file cannot be read.
Tensor read_image(const std::string& path, const DecodeOptions& options = {});

}  // namespace axle::data
