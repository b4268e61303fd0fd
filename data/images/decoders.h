// Private to data: the decoders of the image formats, and what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"
#include "data/images/decode.h"

namespace axle::data {

struct EncodedImage {
    std::span<const std::byte> bytes;
    const std::string& name;
    const DecodeOptions& options;
};

// Throws FileError "name: format: reason". Replaces unprintable characters.
[[noreturn]] void throw_damaged(const EncodedImage& image, const char* format,
                                const std::string& reason);
// Throws UsageError: the build lacks the library of a Debian package.
[[noreturn]] void throw_no_decoder(const EncodedImage& image, const char* format,
                                   const char* package);

// Returns a new tensor for the pixels. Throws FileError if there are more than max_pixels.
Tensor pixels_for(const EncodedImage& image, const char* format, std::int64_t height,
                  std::int64_t width);

// Writes a row of interleaved pixels to row y of each channel of an image [C, H, W].
void store_row(const std::uint8_t* row, std::int64_t y, Tensor& pixels);

// Decode an image of the format. See decode_image().
Tensor decode_jpeg(const EncodedImage& image);
Tensor decode_png(const EncodedImage& image);
// Return whether Axle was built with the library of the format.
bool has_jpeg();
bool has_png();

}  // namespace axle::data
