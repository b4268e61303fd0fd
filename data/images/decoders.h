// Private to data: the decoders of the image formats, and what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"
#include "data/image_window.h"
#include "data/images/decode.h"

namespace axle::data {

struct EncodedImage {
    std::span<const std::byte> bytes;
    const std::string& name;
    const DecodeOptions& options;
};

// Does the same as read_image(), but returns only the pixels of a window (a view of the image if
// the whole image had to be decoded).
Tensor read_window(const std::string& path, const DecodeOptions& options,
                   const ChooseWindow& choose);

// Throws FileError "name: format: reason". Replaces unprintable characters.
[[noreturn]] void throw_damaged(const EncodedImage& image, const char* format,
                                const std::string& reason);
// Throws UsageError: the build lacks the library of a Debian package.
[[noreturn]] void throw_no_decoder(const EncodedImage& image, const char* format,
                                   const char* package);

// Throws FileError unless the image has pixels, and no more than max_pixels.
void check_size(const EncodedImage& image, const char* format, Size2 size);
// Returns a new tensor for pixels with the mode of an image.
Tensor pixels_for(const EncodedImage& image, Size2 size);

// Writes a row of interleaved pixels to row y of each channel of an image [C, H, W].
void store_row(const std::uint8_t* row, std::int64_t y, Tensor& pixels);

// Decode an image of the format. See decode_image(). decode_jpeg() decodes only the window that
// `choose` returns, unless `choose` is empty.
Tensor decode_jpeg(const EncodedImage& image, const ChooseWindow& choose);
Tensor decode_png(const EncodedImage& image);
// Return whether Axle was built with the library of the format.
bool has_jpeg();
bool has_png();

}  // namespace axle::data
