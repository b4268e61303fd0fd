// Compiled without fused multiply-add, so that bytes are the same on every machine.
#include "data/images/gaussian_blur.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "data/images/byte_image.h"
#include "data/images/random_window.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// Rows are computed in blocks of this fixed length, so that the compiler vectorizes the loops and
// keeps the sums in registers.
constexpr std::int64_t kBlock = 16;

// Returns the weights of a kernel with the arithmetic of torchvision: softmax of -(x / sigma)^2 in
// f32.
std::vector<float> gaussian_kernel(std::int64_t size, double sigma) {
    const std::int64_t center = size / 2;
    const auto limit = static_cast<float>(static_cast<double>(size - 1) / (2 * std::sqrt(2.0)));
    const float step = 2 * limit / static_cast<float>(std::max<std::int64_t>(size - 1, 1));
    std::vector<float> weights(static_cast<std::size_t>(size), 1);
    float sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
        float& weight = weights[static_cast<std::size_t>(i)];
        if (i != center) {  // the quotient is not defined for the center if sigma rounds to 0
            const auto from_end = static_cast<float>(std::min(i, size - 1 - i));
            const float x = fused(limit, -step, from_end) / static_cast<float>(sigma);
            weight = std::exp(-(x * x));
        }
        sum += weight;
    }
    const float scale = 1 / sum;
    for (float& weight : weights) weight *= scale;
    // Smaller weights do not change a sum in f32, but slow it down.
    constexpr float kSmallest = 1e-10f;
    const auto first = std::ranges::find_if(weights, [](float w) { return w >= kSmallest; });
    const auto skipped = first - weights.begin();
    return {first, weights.end() - skipped};
}

// Returns the position in [0, n) of position i in (-n, 2 n - 1) of the reflected line.
std::int64_t reflected(std::int64_t i, std::int64_t n) {
    if (i < 0) return -i;
    return i < n ? i : 2 * (n - 1) - i;
}

std::int64_t whole_blocks(std::int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// Writes the sums of weights[k] * lines[k][x] to the block `to`, for kBlock values of x.
template <class Line>
void weighted_sum(const std::vector<float>& weights, Line&& line, float* to) {
    float sums[kBlock] = {};
    for (std::size_t k = 0; k < weights.size(); ++k) {
        const float* const from = line(k);
        for (std::int64_t x = 0; x < kBlock; ++x) sums[x] += weights[k] * from[x];
    }
    std::memcpy(to, sums, sizeof sums);
}

// Rounds numbers in [0, 255.5) to the nearest integers, with ties to even. Returns the largest
// distance of a number from the integer.
float round_block(const float* from, std::uint8_t* to) {
    constexpr float kMagic = 0x1.8p23f;  // adding it leaves the integer in the lowest bits
    float distances[kBlock];
    for (std::int64_t x = 0; x < kBlock; ++x) {
        const float rounded = from[x] + kMagic;
        to[x] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(rounded));
        distances[x] = std::abs(from[x] - (rounded - kMagic));
    }
    for (std::int64_t n = kBlock / 2; n > 0; n /= 2)
        for (std::int64_t x = 0; x < n; ++x)
            distances[x] = std::max(distances[x], distances[x + n]);
    return distances[0];
}

// Blurs the planes of images of one size with one kernel. Sums along rows and along columns need
// few operations, but round differently from torchvision, which adds all products of the kernel one
// after another. Sums close to the middle between two bytes are computed again as in torchvision.
class Blur {
  public:
    Blur(Size2 image, Size2 kernel, double sigma)
        : size_(image),
          across_(gaussian_kernel(kernel.w, sigma)),
          down_(gaussian_kernel(kernel.h, sigma)),
          radius_(std::ssize(down_) / 2, std::ssize(across_) / 2),
          safe_distance_(0.5f -
                         4e-5f * std::sqrt(static_cast<float>(down_.size() * across_.size()))),
          width_(whole_blocks(image.w)),
          line_(static_cast<std::size_t>(width_) + across_.size()),
          rows_(static_cast<std::size_t>(width_) * down_.size()),
          original_(static_cast<std::size_t>(image.h * image.w)) {}

    // Changes a plane in place.
    void operator()(std::uint8_t* plane) {
        std::memcpy(original_.data(), plane, original_.size());
        std::int64_t read = 0;  // the number of rows that were blurred across
        for (std::int64_t y = 0; y < size_.h; ++y) {
            for (; read < std::min(size_.h, y + radius_.h + 1); ++read)
                blur_across(original_.data() + read * size_.w, row(read));
            for (std::int64_t x = 0; x < size_.w; x += kBlock)
                blur_block(y, x, plane + y * size_.w + x);
        }
    }

  private:
    // Returns the memory of a blurred row. The last rows are kept, as many as the kernel has.
    float* row(std::int64_t y) { return rows_.data() + y % std::ssize(down_) * width_; }

    void blur_block(std::int64_t y, std::int64_t x, std::uint8_t* to) {
        const std::int64_t n = std::min(kBlock, size_.w - x);
        float sums[kBlock];
        weighted_sum(
            down_,
            [&](std::size_t k) {
                const std::int64_t from = y + static_cast<std::int64_t>(k) - radius_.h;
                return row(reflected(from, size_.h)) + x;
            },
            sums);
        std::uint8_t bytes[kBlock];
        if (round_block(sums, bytes) > safe_distance_)
            for (std::int64_t i = 0; i < n; ++i)
                if (std::abs(sums[i] - static_cast<float>(bytes[i])) > safe_distance_)
                    bytes[i] = exact_byte(y, x + i);
        std::memcpy(to, bytes, static_cast<std::size_t>(n));
    }

    std::uint8_t exact_byte(std::int64_t y, std::int64_t x) const {
        float sum = 0;
        for (std::int64_t i = 0; i < std::ssize(down_); ++i)
            for (std::int64_t j = 0; j < std::ssize(across_); ++j) {
                const std::int64_t at = reflected(y + i - radius_.h, size_.h) * size_.w +
                                        reflected(x + j - radius_.w, size_.w);
                const float weight =
                    down_[static_cast<std::size_t>(i)] * across_[static_cast<std::size_t>(j)];
                sum = fused(sum, weight, original_[static_cast<std::size_t>(at)]);
            }
        return static_cast<std::uint8_t>(std::lrint(sum));
    }

    void blur_across(const std::uint8_t* from, float* to) {
        const std::int64_t radius = radius_.w;
        for (std::int64_t x = 0; x < size_.w; ++x)
            line_[static_cast<std::size_t>(x + radius)] = from[x];
        for (std::int64_t i = 1; i <= radius; ++i) {
            line_[static_cast<std::size_t>(radius - i)] = from[i];
            line_[static_cast<std::size_t>(radius + size_.w - 1 + i)] = from[size_.w - 1 - i];
        }
        for (std::int64_t x = 0; x < size_.w; x += kBlock)
            weighted_sum(
                across_, [&](std::size_t k) { return line_.data() + x + k; }, to + x);
    }

    Size2 size_;
    std::vector<float> across_, down_;
    Size2 radius_;
    float safe_distance_;      // larger distances from an integer are close to the middle
    std::int64_t width_;       // of a row in memory: whole blocks
    std::vector<float> line_;  // a row of the plane with its reflections
    std::vector<float> rows_;
    std::vector<std::uint8_t> original_;
};

}  // namespace

void gaussian_blur(const ByteImage& image, Size2 kernel_size, double sigma) {
    Blur blur(image.size, kernel_size, sigma);
    for (std::int64_t c = 0; c < image.channels; ++c) blur(image.plane(c));
}

GaussianBlur::GaussianBlur(Size2 kernel_size, std::array<double, 2> sigma)
    : kernel_size_(kernel_size), sigma_(sigma) {
    for (const std::int64_t side : {kernel_size.h, kernel_size.w})
        if (side < 1 || side > 65535 || side % 2 == 0)
            throw ValueError(
                str("GaussianBlur: kernel sizes must be odd and in [1, 65535]: ", kernel_size));
    if (!(sigma[0] > 0 && sigma[0] <= sigma[1] && sigma[1] <= 1e6))
        throw ValueError(
            str("GaussianBlur: sigma must be two numbers in (0, 1e6], the smaller one "
                "first: ",
                sigma[0], " and ", sigma[1]));
}

Tensor GaussianBlur::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    ByteImages result("GaussianBlur", images, random);
    if (result.empty()) return result.tensor();
    const Size2 size = result.size();
    if (kernel_size_.h / 2 >= size.h || kernel_size_.w / 2 >= size.w)
        throw ShapeError(str("GaussianBlur: images of size ", size,
                             " are too small for the kernel ", kernel_size_,
                             ": a side must be larger than half of the kernel's"));
    for (std::int64_t i = 0; i < std::ssize(random); ++i) {
        const float sigma =
            between(sigma_[0], sigma_[1], random[static_cast<std::size_t>(i)].uniform());
        result.each(i, [&](const ByteImage& image) { gaussian_blur(image, kernel_size_, sigma); });
    }
    return result.tensor();
}

}  // namespace axle::data
