// Private to data: the windows that RandomResizedCrop and RandomErasing draw.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "core/size2.h"
#include "data/image_window.h"
#include "data/images/resize.h"

namespace axle::data {

// Rounds to the nearest integer, with ties to even, as in Python.
inline std::int64_t round_to_even(double x) { return std::llrint(x); }

// Returns the number in [low, high] that belongs to a uniform number in [0, 1).
inline float between(double low, double high, float uniform) {
    return static_cast<float>(low + (high - low) * static_cast<double>(uniform));
}

// Returns the window of torchvision's RandomResizedCrop.get_params, which computes in f32 and f64
// as below. uniform() returns a number in [0, 1), and integer(n) an integer in [0, n).
template <class Uniform, class Integer>
ImageWindow random_window(Size2 image, const RandomResizedCropOptions& options, Uniform uniform,
                          Integer integer) {
    const auto [low, high] = options.ratio;
    const double log_low = std::log(static_cast<float>(low));
    const double log_high = std::log(static_cast<float>(high));
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double area =
            static_cast<double>(image.h * image.w) *
            static_cast<double>(between(options.scale[0], options.scale[1], uniform()));
        const auto aspect = static_cast<double>(std::exp(between(log_low, log_high, uniform())));
        const double width = std::sqrt(area * aspect), height = std::sqrt(area / aspect);
        // The comparisons come before the conversions, which need numbers in range.
        if (!(width < 1e9 && height < 1e9)) continue;
        const Size2 size = {round_to_even(height), round_to_even(width)};
        if (size.w < 1 || size.w > image.w || size.h < 1 || size.h > image.h) continue;
        const std::int64_t top = integer(image.h - size.h + 1);
        return {top, integer(image.w - size.w + 1), size};
    }
    const double ratio = static_cast<double>(image.w) / static_cast<double>(image.h);
    Size2 size = image;
    if (ratio < low) size.h = round_to_even(static_cast<double>(image.w) / low);
    if (ratio > high) size.w = round_to_even(static_cast<double>(image.h) * high);
    size = {std::clamp<std::int64_t>(size.h, 1, image.h),
            std::clamp<std::int64_t>(size.w, 1, image.w)};
    return {(image.h - size.h) / 2, (image.w - size.w) / 2, size};
}

// Returns the window of torchvision's RandomErasing, or nullopt if none of ten windows is smaller
// than the image in both directions. `ratio` is the range of heights divided by widths.
template <class Uniform, class Integer>
std::optional<ImageWindow> erased_window(Size2 image, const std::array<double, 2>& scale,
                                         const std::array<double, 2>& ratio, Uniform uniform,
                                         Integer integer) {
    const double log_low = std::log(static_cast<float>(ratio[0]));
    const double log_high = std::log(static_cast<float>(ratio[1]));
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double area = static_cast<double>(image.h * image.w) *
                            static_cast<double>(between(scale[0], scale[1], uniform()));
        const auto aspect = static_cast<double>(std::exp(between(log_low, log_high, uniform())));
        const double height = std::sqrt(area * aspect), width = std::sqrt(area / aspect);
        if (!(width < 1e9 && height < 1e9)) continue;
        const Size2 size = {round_to_even(height), round_to_even(width)};
        if (size.h >= image.h || size.w >= image.w) continue;
        const std::int64_t top = integer(image.h - size.h + 1);
        return ImageWindow{top, integer(image.w - size.w + 1), size};
    }
    return std::nullopt;
}

}  // namespace axle::data
