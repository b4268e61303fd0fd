// Private to data: operations on the pixels of u8 images, with the arithmetic of torchvision.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/size2.h"
#include "core/tensor.h"
#include "data/transforms.h"

namespace axle::data {

// The pixels of one image [channels, height, width] in memory that another object owns.
struct ByteImage {
    std::uint8_t* data;
    std::int64_t channels;  // 1 (gray) or 3 (red, green and blue)
    Size2 size;

    std::int64_t pixels() const { return size.h * size.w; }
    std::uint8_t* plane(std::int64_t channel) const { return data + channel * pixels(); }
};

// Returns a + b * c, rounded once.
inline float fused(float a, float b, float c) {
    return static_cast<float>(static_cast<double>(a) +
                              static_cast<double>(b) * static_cast<double>(c));
}

inline constexpr int kPixelBlock = 32;

// Calls f(red, green, blue) for blocks of kPixelBlock pixels of an image with three channels. f
// changes the bytes of a block in place. The fixed length lets the compiler vectorize the loops of
// f; the unused end of the last block is not stored.
template <class F>
void for_each_block(const ByteImage& image, F&& f) {
    std::uint8_t block[3][kPixelBlock] = {};
    const std::int64_t n = image.pixels();
    for (std::int64_t i = 0; i < n; i += kPixelBlock) {
        const auto bytes = static_cast<std::size_t>(std::min<std::int64_t>(kPixelBlock, n - i));
        for (std::int64_t c = 0; c < 3; ++c) std::memcpy(block[c], image.plane(c) + i, bytes);
        f(block[0], block[1], block[2]);
        for (std::int64_t c = 0; c < 3; ++c) std::memcpy(image.plane(c) + i, block[c], bytes);
    }
}

// A copy of the u8 images [n, ..., c, h, w] (or gray images [n, h, w]) of a batch, which a random
// transform changes in place.
class ByteImages {
  public:
    // Throws the errors in data/transforms.h, DTypeError unless the images are u8, and ShapeError
    // unless they have 1 or 3 channels. The messages name the transform `op`.
    ByteImages(const char* op, const Tensor& images, std::span<SampleRandom> random);

    bool empty() const { return copy_.numel() == 0; }
    Size2 size() const { return {copy_.size(-2), copy_.size(-1)}; }
    // Calls f(ByteImage) for each image of sample i. A sample has several if the images have five
    // dimensions or more.
    template <class F>
    void each(std::int64_t i, F&& f) {
        ByteImage image = {copy_.data<std::uint8_t>() + i * stride_, channels_, size()};
        const std::int64_t bytes = channels_ * image.pixels();
        for (std::int64_t k = 0; k < stride_; k += bytes, image.data += bytes) f(image);
    }
    const Tensor& tensor() const { return copy_; }

  private:
    Tensor copy_;
    std::int64_t channels_, stride_;
};

// The functions below change an image in place, as the functions of
// torchvision.transforms.v2.functional with these names (rgb_to_grayscale for grayscale) do. An
// image has at least one pixel.

// Factors are at least 0; 1 keeps the image, and 0 gives a black, uniformly gray, gray or blurred
// image. Bytes equal the bytes of torchvision on a CPU with FMA instructions, with one exception:
// torchvision rounds the mean of adjust_contrast() if the sum of all pixels is above 2^24.
void adjust_brightness(const ByteImage& image, double factor);
void adjust_contrast(const ByteImage& image, double factor);
void adjust_saturation(const ByteImage& image, double factor);
void adjust_sharpness(const ByteImage& image, double factor);
// Sets all channels to the brightness of the pixel. Gray images are not changed.
void grayscale(const ByteImage& image);
// Rotates the hue by a fraction in [-0.5, 0.5] of a turn. Gray images are not changed.
void adjust_hue(const ByteImage& image, double factor);
// Keeps the highest `bits` bits of each byte, in [0, 8].
void posterize(const ByteImage& image, int bits);
// Inverts the bytes that are at least `threshold`.
void solarize(const ByteImage& image, double threshold);
void autocontrast(const ByteImage& image);
void equalize(const ByteImage& image);
// Blurs the image (see GaussianBlur). Half of a kernel's side, rounded down, must be smaller than
// the image's side. sigma must be positive.
void gaussian_blur(const ByteImage& image, Size2 kernel_size, double sigma);

// The largest height and width of images that can be warped.
inline constexpr std::int64_t kLongestWarpedSide = (std::int64_t{1} << 22) - 1;

// The functions below move pixels to the nearest positions of an affine map. Pixels from outside
// become 0. Sides must be at most kLongestWarpedSide, and the image must have fewer than 2^31
// pixels.
//
// Moves row y to the left by y * level pixels, and column x up by x * level pixels.
void shear_x(const ByteImage& image, double level);
void shear_y(const ByteImage& image, double level);
void translate(const ByteImage& image, std::int64_t right, std::int64_t down);
// Rotates the image counterclockwise around its center.
void rotate(const ByteImage& image, double degrees);

}  // namespace axle::data
