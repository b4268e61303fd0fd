// Compiled without fused multiply-add, as byte_image.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "data/images/byte_image.h"

namespace axle::data {
namespace {

// An affine map from positions of the result to positions of the source, relative to the center of
// the image: x' = m[0] x + m[1] y + m[2], y' = m[3] x + m[4] y + m[5].
using Affine = std::array<double, 6>;

double radians(double degrees) { return degrees * (std::numbers::pi / 180); }

// Returns the inverse of a rotation, a shear and a translation, with the operations of torchvision.
// Angles are in degrees.
Affine inverse_affine(double angle, double shear_x, double shear_y, double center_x,
                      double center_y, double right, double down) {
    const double turn = radians(angle), sx = radians(shear_x), sy = radians(shear_y);
    const double a = std::cos(turn - sy) / std::cos(sy);
    const double b = -(a * std::tan(sx) + std::sin(turn));
    const double c = std::sin(turn - sy) / std::cos(sy);
    const double d = std::cos(turn) - c * std::tan(sx);
    Affine m = {d, -b, 0, -c, a, 0};
    m[2] += center_x - m[0] * (center_x + right) - m[1] * (center_y + down);
    m[5] += center_y - m[3] * (center_x + right) - m[4] * (center_y + down);
    return m;
}

// One coordinate of the source position of a pixel, as PyTorch's affine grid and grid_sample()
// compute it in f32.
class Coordinate {
  public:
    Coordinate(const double* row, std::int64_t side, std::int64_t height)
        : middle_(static_cast<float>(height - 1) / 2), side_(static_cast<float>(side)) {
        const float half = static_cast<float>(0.5 * static_cast<double>(side));
        for (std::size_t k = 0; k < 3; ++k) m_[k] = static_cast<float>(row[k]) / half;
    }
    // Sets to[x] to the nearest source coordinate of pixel (x, y). Coordinates outside the image
    // are at least -1 and at most side + 1.
    void operator()(std::int64_t y, std::vector<std::int32_t>& to) const {
        const auto width = static_cast<std::int32_t>(to.size());
        const float left = static_cast<float>(width - 1) / 2;
        const float down = (static_cast<float>(y) - middle_) * m_[1];
        const float a = m_[0], c = m_[2], side = side_, half = side_ / 2;
        std::int32_t* out = to.data();
        for (std::int32_t x = 0; x < width; ++x) {
            const float position = (static_cast<float>(x) - left) * a + down + c;
            // PyTorch computes this line with a fused multiply-add.
            const auto pixel = static_cast<float>(
                static_cast<double>(position + 1.0f) * static_cast<double>(half) - 0.5);
            const float limited = std::min(std::max(pixel, -1.0f), side + 1.0f);
            // Adding 1.5 * 2^23 rounds to an integer, with ties to even.
            out[x] = static_cast<std::int32_t>((limited + 0x1.8p23f) - 0x1.8p23f);
        }
    }

  private:
    float middle_, side_;
    std::array<float, 3> m_;
};

void warp(const ByteImage& image, const Affine& inverse) {
    const auto [height, width] = image.size;
    const std::int64_t pixels = image.pixels();
    const std::vector<std::uint8_t> copy(image.data, image.data + image.channels * pixels);
    const Coordinate column(inverse.data(), width, height), row(inverse.data() + 3, height, height);
    std::vector<std::int32_t> xs(static_cast<std::size_t>(width)), ys(xs.size());
    const auto w = static_cast<std::int32_t>(width), h = static_cast<std::int32_t>(height);
    for (std::int64_t y = 0; y < height; ++y) {
        column(y, xs);
        row(y, ys);
        for (std::size_t x = 0; x < xs.size(); ++x) {  // xs becomes the offset in a plane, or -1
            const bool inside = xs[x] >= 0 && xs[x] < w && ys[x] >= 0 && ys[x] < h;
            xs[x] = inside ? ys[x] * w + xs[x] : -1;
        }
        for (std::int64_t c = 0; c < image.channels; ++c) {
            const std::uint8_t* from = copy.data() + c * pixels;
            std::uint8_t* to = image.plane(c) + y * width;
            for (std::size_t x = 0; x < xs.size(); ++x) to[x] = xs[x] < 0 ? 0 : from[xs[x]];
        }
    }
}

// Rotates a square image counterclockwise by a quarter of a turn.
void rotate_square(const ByteImage& image) {
    const std::int64_t n = image.size.h;
    const std::vector<std::uint8_t> copy(image.data, image.data + image.channels * image.pixels());
    const std::uint8_t* from = copy.data();
    for (std::int64_t c = 0; c < image.channels; ++c, from += image.pixels())
        for (std::int64_t y = 0; y < n; ++y)
            for (std::int64_t x = 0; x < n; ++x)
                image.plane(c)[y * n + x] = from[x * n + n - 1 - y];
}

void turn_upside_down(const ByteImage& image) {
    for (std::int64_t c = 0; c < image.channels; ++c)
        std::reverse(image.plane(c), image.plane(c) + image.pixels());
}

// A level is the tangent of the angle of a shear, whose center is the upper left corner.
double shear_degrees(double level) { return std::atan(level) * (180 / std::numbers::pi); }

Affine corner_shear(Size2 size, double degrees_x, double degrees_y) {
    return inverse_affine(0, degrees_x, degrees_y, -0.5 * static_cast<double>(size.w),
                          -0.5 * static_cast<double>(size.h), 0, 0);
}

}  // namespace

void shear_x(const ByteImage& image, double level) {
    warp(image, corner_shear(image.size, shear_degrees(level), 0));
}

void shear_y(const ByteImage& image, double level) {
    warp(image, corner_shear(image.size, 0, shear_degrees(level)));
}

void translate(const ByteImage& image, std::int64_t right, std::int64_t down) {
    warp(image,
         inverse_affine(0, 0, 0, 0, 0, static_cast<double>(right), static_cast<double>(down)));
}

void rotate(const ByteImage& image, double degrees) {
    double turn = std::fmod(degrees, 360);
    if (turn < 0) turn += 360;
    if (turn == 0) return;
    const bool square = image.size.h == image.size.w;
    if (turn == 180 || (square && turn == 270)) turn_upside_down(image);
    if (turn == 180) return;
    if (square && (turn == 90 || turn == 270)) return rotate_square(image);
    warp(image, inverse_affine(-turn, 0, 0, 0, 0, 0, 0));
}

}  // namespace axle::data
