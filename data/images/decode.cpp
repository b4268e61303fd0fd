#include "data/images/decode.h"

#include <cstring>
#include <string_view>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/images/decoders.h"
#include "kernels/error.h"
#include "kernels/ops/decode.h"

namespace axle::data {
namespace {

void check_limits(const DecodeOptions& options) {
    if (options.max_pixels < 1 || options.max_bytes < 1)
        throw ValueError(str("decode_image: max_pixels and max_bytes must be positive: ",
                             options.max_pixels, " and ", options.max_bytes));
}

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

// Decodes the window of an image, or the whole image if `choose` is empty.
Tensor decode(std::span<const std::byte> bytes, const std::string& name,
              const DecodeOptions& options, const ChooseWindow& choose) {
    check_limits(options);
    if (std::ssize(bytes) > options.max_bytes)
        throw FileError(str(printable(name), ": the image has ", bytes.size(),
                            " bytes, more than max_bytes = ", options.max_bytes));
    const EncodedImage image{bytes, name, options};
    if (begins_with(bytes, "\xff\xd8\xff")) return decode_jpeg(image, choose);
    if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) {
        const Tensor pixels = decode_png(image);
        if (!choose) return pixels;
        const ImageWindow window = choose({pixels.size(1), pixels.size(2)});
        return pixels.narrow(1, window.top, window.size.h).narrow(2, window.left, window.size.w);
    }
    throw FileError(
        str(printable(name), ": not a JPEG or PNG image",
            bytes.empty() ? ": the file is empty" : ": its first bytes are those of neither"));
}

}  // namespace

bool can_decode(ImageFormat format) { return format == ImageFormat::jpeg ? has_jpeg() : has_png(); }

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    const DecodeOptions& options) {
    return decode(bytes, name, options, {});
}

Tensor read_window(const std::string& path, const DecodeOptions& options,
                   const ChooseWindow& choose) {
    check_limits(options);
    const std::string bytes = read_file(path, options.max_bytes);
    return decode(std::as_bytes(std::span(bytes)), path, options, choose);
}

Tensor read_image(const std::string& path, const DecodeOptions& options) {
    return read_window(path, options, {});
}

void throw_damaged(const EncodedImage& image, const char* format, const std::string& reason) {
    throw FileError(str(printable(image.name), ": ", format, ": ", printable(reason)));
}

void throw_no_decoder(const EncodedImage& image, const char* format, const char* package) {
    throw UsageError(str(printable(image.name), ": this build of Axle cannot decode ", format,
                         " images: install ", package, " and build Axle again"));
}

void check_size(const EncodedImage& image, const char* format, Size2 size) {
    if (size.h < 1 || size.w < 1)
        throw_damaged(image, format, str("the image has no pixels: ", size.h, " x ", size.w));
    if (size.w > image.options.max_pixels / size.h)
        throw_damaged(image, format,
                      str("an image of height ", size.h, " and width ", size.w,
                          " has more pixels than max_pixels = ", image.options.max_pixels));
}

Tensor pixels_for(const EncodedImage& image, Size2 size) {
    const std::int64_t channels = image.options.mode == ImageMode::rgb ? 3 : 1;
    return empty({channels, size.h, size.w}, {.dtype = u8});
}

void store_row(const std::uint8_t* row, std::int64_t y, Tensor& pixels) {
    const std::int64_t width = pixels.size(2), plane = pixels.size(1) * width;
    std::uint8_t* to = pixels.data<std::uint8_t>() + y * width;
    if (pixels.size(0) == 1)
        std::memcpy(to, row, static_cast<std::size_t>(width));
    else
        kernels::separate_pixels(row, width, to, plane);
}

}  // namespace axle::data
