#include "data/images/color_jitter.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "data/images/byte_image.h"
#include "data/images/random_window.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using Range = std::array<double, 2>;

// Returns the range of a factor whose neutral value is `center`, or nullopt if the factor is always
// neutral.
std::optional<Range> range_of(const char* name, const JitterRange& option, double center,
                              Range limits) {
    if (!(option.amount >= 0))
        throw ValueError(str("ColorJitter: ", name, " must not be negative: ", option.amount));
    Range range = {center - option.amount, center + option.amount};
    if (center == 1) range[0] = std::max(range[0], 0.0);
    if (option.range) range = *option.range;
    if (!(limits[0] <= range[0] && range[0] <= range[1] && range[1] <= limits[1]))
        throw ValueError(str("ColorJitter: the range of ", name, " must be in [", limits[0], ", ",
                             limits[1], "], the smaller number first: ", range[0], " and ",
                             range[1]));
    if (range[0] == center && range[1] == center) return std::nullopt;
    return range;
}

}  // namespace

ColorJitter::ColorJitter(ColorJitterOptions options) {
    constexpr Range kFactors = {0, 1e6};
    ranges_ = {range_of("brightness", options.brightness, 1, kFactors),
               range_of("contrast", options.contrast, 1, kFactors),
               range_of("saturation", options.saturation, 1, kFactors),
               range_of("hue", options.hue, 0, {-0.5, 0.5})};
}

Tensor ColorJitter::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    ByteImages result("ColorJitter", images, random);
    if (result.empty()) return result.tensor();
    for (std::int64_t i = 0; i < std::ssize(random); ++i) {
        SampleRandom& draw = random[static_cast<std::size_t>(i)];
        std::array<std::size_t, 4> order = {0, 1, 2, 3};
        for (std::size_t k = 3; k > 0; --k)
            std::swap(
                order[k],
                order[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(k) + 1))]);
        std::array<double, 4> factors = {};
        for (std::size_t k = 0; k < 4; ++k)
            if (ranges_[k]) {
                const auto& [low, high] = *ranges_[k];
                factors[k] = static_cast<double>(between(low, high, draw.uniform()));
            }
        constexpr std::array kAdjust = {adjust_brightness, adjust_contrast, adjust_saturation,
                                        adjust_hue};
        result.each(i, [&](const ByteImage& image) {
            for (const std::size_t k : order)
                if (ranges_[k]) kAdjust[k](image, factors[k]);
        });
    }
    return result.tensor();
}

RandomGrayscale::RandomGrayscale(double p) : p_(p) {
    if (!(p >= 0 && p <= 1)) throw ValueError(str("RandomGrayscale: p must be in [0, 1]: ", p));
}

Tensor RandomGrayscale::operator()(const Tensor& images, std::span<SampleRandom> random) const {
    ByteImages result("RandomGrayscale", images, random);
    if (result.empty()) return result.tensor();
    for (std::int64_t i = 0; i < std::ssize(random); ++i)
        if (random[static_cast<std::size_t>(i)].uniform() < static_cast<float>(p_))
            result.each(i, grayscale);
    return result.tensor();
}

}  // namespace axle::data
