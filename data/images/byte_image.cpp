// Compiled without fused multiply-add, so that bytes are the same on every machine; fused() states
// where PyTorch's kernels use it.
#include "data/images/byte_image.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/ops.h"
#include "data/image_checks.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using ByteTable = std::array<std::uint8_t, 256>;

// Limits x to [0, 255] and drops the fraction.
std::uint8_t to_byte(float x) {
    return static_cast<std::uint8_t>(
        static_cast<std::int32_t>(std::min(std::max(x, 0.0f), 255.0f)));
}

// Returns the brightness of a pixel, from 0 to 254.
float gray_of(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
    const float x = fused(fused(static_cast<float>(red) * 0.2989f, green, 0.587f), blue, 0.114f);
    return static_cast<float>(static_cast<std::int32_t>(x));
}

// Returns the table of f(byte) for all bytes.
template <class F>
ByteTable table_of(F&& f) {
    ByteTable table;
    for (std::size_t i = 0; i < table.size(); ++i)
        table[i] = static_cast<std::uint8_t>(f(static_cast<int>(i)));
    return table;
}

void look_up(std::uint8_t* x, std::int64_t n, const ByteTable& table) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = table[x[i]];
}

// Returns the number of pixels with each value.
std::array<std::int64_t, 256> histogram(const std::uint8_t* x, std::int64_t n) {
    // Equal neighbors are counted in different tables, so that an increment need not wait for the
    // one before.
    std::array<std::array<std::int64_t, 256>, 4> counts = {};
    for (std::int64_t i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(i) % 4][x[i]];
    for (std::size_t i = 0; i < 256; ++i)
        counts[0][i] += counts[1][i] + counts[2][i] + counts[3][i];
    return counts[0];
}

// Returns the mean brightness of an image.
float mean_of(const ByteImage& image) {
    const std::int64_t n = image.pixels();
    std::int64_t sum = 0;
    const std::uint8_t *red = image.data, *green = image.plane(1), *blue = image.plane(2);
    if (image.channels == 1) {
        for (std::int64_t i = 0; i < n; ++i) sum += red[i];
    } else {
        for (std::int64_t i = 0; i < n; ++i)
            sum += static_cast<std::int32_t>(gray_of(red[i], green[i], blue[i]));
    }
    return static_cast<float>(sum) / static_cast<float>(n);
}

// Returns the table of `factor` * byte + (1 - `factor`) * other.
ByteTable blend_table(double factor, float other) {
    const auto own = static_cast<float>(factor), rest = static_cast<float>(1.0 - factor);
    return table_of(
        [&](int x) { return to_byte(fused(static_cast<float>(x) * own, other, rest)); });
}

}  // namespace

ByteImages::ByteImages(const char* op, const Tensor& images, std::span<SampleRandom> random) {
    check_images(op, images);
    if (images.dtype() != u8)
        throw DTypeError(str(op, ": images must be uint8: they are ", images.dtype(), "; apply ",
                             op, " before ToFloat"));
    channels_ = images.dim() == 3 ? 1 : images.size(-3);
    if (channels_ != 1 && channels_ != 3)
        throw ShapeError(str(op, ": images must have 1 or 3 channels: they are ", images.shape()));
    if (std::ssize(random) != images.size(0))
        throw UsageError(str(op, ": needs one SampleRandom per image: ", images.size(0),
                             " images, ", random.size(), " given"));
    copy_ = contiguous(images).clone();
    stride_ = copy_.numel() / std::max<std::int64_t>(copy_.size(0), 1);
}

void adjust_brightness(const ByteImage& image, double factor) {
    const auto scale = static_cast<float>(factor);
    look_up(image.data, image.channels * image.pixels(),
            table_of([&](int x) { return to_byte(static_cast<float>(x) * scale); }));
}

void adjust_contrast(const ByteImage& image, double factor) {
    look_up(image.data, image.channels * image.pixels(), blend_table(factor, mean_of(image)));
}

void adjust_saturation(const ByteImage& image, double factor) {
    if (image.channels == 1) return;
    const auto own = static_cast<float>(factor), rest = static_cast<float>(1.0 - factor);
    for_each_block(image, [&](auto& red, auto& green, auto& blue) {
        for (int i = 0; i < kPixelBlock; ++i) {
            const float gray = gray_of(red[i], green[i], blue[i]);
            red[i] = to_byte(fused(static_cast<float>(red[i]) * own, gray, rest));
            green[i] = to_byte(fused(static_cast<float>(green[i]) * own, gray, rest));
            blue[i] = to_byte(fused(static_cast<float>(blue[i]) * own, gray, rest));
        }
    });
}

void grayscale(const ByteImage& image) {
    if (image.channels == 1) return;
    for_each_block(image, [](auto& red, auto& green, auto& blue) {
        for (int i = 0; i < kPixelBlock; ++i)
            red[i] = green[i] = blue[i] = to_byte(gray_of(red[i], green[i], blue[i]));
    });
}

// The blurred value is the mean of nine pixels, of which the one at the center counts five times.
void adjust_sharpness(const ByteImage& image, double factor) {
    const auto [height, width] = image.size;
    if (height <= 2 || width <= 2) return;
    const auto rest = static_cast<float>(1.0 - factor);
    std::vector<std::uint8_t> copy(static_cast<std::size_t>(image.pixels()));
    for (std::int64_t c = 0; c < image.channels; ++c) {
        std::uint8_t* plane = image.plane(c);
        std::copy_n(plane, image.pixels(), copy.data());
        for (std::int64_t y = 1; y < height - 1; ++y) {
            const std::uint8_t *above = copy.data() + (y - 1) * width, *row = above + width,
                               *below = row + width;
            std::uint8_t* out = plane + y * width;
            for (std::int64_t x = 1; x < width - 1; ++x) {
                const int sum = above[x - 1] + above[x] + above[x + 1] + row[x - 1] + 5 * row[x] +
                                row[x + 1] + below[x - 1] + below[x] + below[x + 1];
                // sum / 13 is never halfway between two integers.
                const int blurred = static_cast<std::uint16_t>(sum + 6) / 13;
                out[x] = to_byte(
                    fused(row[x], static_cast<float>(blurred - static_cast<int>(row[x])), rest));
            }
        }
    }
}

void posterize(const ByteImage& image, int bits) {
    const auto mask = static_cast<std::uint8_t>(0xFF00 >> bits);
    std::uint8_t* x = image.data;  // a copy, which the writes below cannot change
    const std::int64_t n = image.channels * image.pixels();
    for (std::int64_t i = 0; i < n; ++i) x[i] &= mask;
}

void solarize(const ByteImage& image, double threshold) {
    const auto limit = static_cast<float>(threshold);
    look_up(image.data, image.channels * image.pixels(),
            table_of([&](int x) { return static_cast<float>(x) >= limit ? 255 - x : x; }));
}

void autocontrast(const ByteImage& image) {
    const std::int64_t n = image.pixels();
    for (std::int64_t c = 0; c < image.channels; ++c) {
        std::uint8_t* plane = image.plane(c);
        std::uint8_t low = 255, high = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            low = std::min(low, plane[i]);
            high = std::max(high, plane[i]);
        }
        if (low == high) continue;
        const float scale = static_cast<float>(high - low) * static_cast<float>(1.0 / 255);
        look_up(plane, n,
                table_of([&](int x) { return to_byte(static_cast<float>(x - low) / scale); }));
    }
}

void equalize(const ByteImage& image) {
    const std::int64_t n = image.pixels();
    for (std::int64_t c = 0; c < image.channels; ++c) {
        const auto counts = histogram(image.plane(c), n);
        std::size_t last = 255;
        while (counts[last] == 0) --last;
        const std::int64_t step = (n - counts[last]) / 255;
        if (step == 0) continue;
        std::int64_t below = 0;
        look_up(image.plane(c), n, table_of([&](int x) {
                    const std::int64_t value = (below + step / 2) / step;
                    below += counts[static_cast<std::size_t>(x)];
                    return std::min<std::int64_t>(value, 255);
                }));
    }
}

}  // namespace axle::data
