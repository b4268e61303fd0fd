// Compiled without fused multiply-add, so that the weights are those of Pillow on every machine.
#include "data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace axle::data {
namespace {

constexpr int kPrecision = 32 - 8 - 2;  // the bits of a weight after the binary point
constexpr std::int32_t kHalf = 1 << (kPrecision - 1);

double triangle_weight(double x) { return std::max(1 - std::abs(x), 0.0); }

double cubic_weight(double x) {  // Keys, with a = -0.5
    constexpr double kA = -0.5;
    x = std::abs(x);
    if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
    return 0;
}

std::uint8_t to_byte(std::int32_t sum) {
    return static_cast<std::uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

}  // namespace

Resampler::Weights::Weights(std::int64_t from, std::int64_t to, Interpolation filter) {
    const bool linear = filter == Interpolation::bilinear;
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double wide = std::max(scale, 1.0);  // a smaller image averages more pixels
    const double support = (linear ? 1.0 : 2.0) * wide, narrow = 1.0 / wide;
    most = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
    weights.resize(static_cast<std::size_t>(to * most));
    std::vector<double> exact(static_cast<std::size_t>(most));
    for (std::int64_t i = 0; i < to; ++i) {
        const double center = (static_cast<double>(i) + 0.5) * scale;
        const double low = center - support + 0.5, high = center + support + 0.5;
        const auto first = std::max(static_cast<std::int64_t>(low), std::int64_t{0});
        const auto last = std::min(static_cast<std::int64_t>(high), from);
        const auto count = static_cast<std::size_t>(last - first);
        double sum = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const double x =
                (static_cast<double>(first + static_cast<std::int64_t>(k)) - center + 0.5) * narrow;
            exact[k] = linear ? triangle_weight(x) : cubic_weight(x);
            sum += exact[k];
        }
        std::int32_t* rounded = weights.data() + i * most;
        for (std::size_t k = 0; k < count; ++k) {
            const double w = sum != 0 ? exact[k] / sum : exact[k];
            rounded[k] = static_cast<std::int32_t>((w < 0 ? -0.5 : 0.5) + w * (1 << kPrecision));
        }
        begin.push_back(first);
        end.push_back(last);
    }
}

// If a height shrinks by more than twice as many pixels as the width, Pillow 13 filters columns
// first, which changes how pixels are rounded.
Resampler::Resampler(Size2 from, Size2 to, Interpolation filter)
    : from_(from),
      to_(to),
      columns_first_(from.h > to.h && from.h - to.h > 2 * (from.w - to.w)),
      across_(from.w, to.w, filter),
      down_(from.h, to.h, filter) {}

void Resampler::operator()(const std::uint8_t* plane, std::int64_t stride, std::uint8_t* result) {
    if (from_.h == to_.h) return resize_rows(plane, stride, to_.h, result);
    if (from_.w == to_.w) return resize_columns(plane, stride, 0, to_.w, result);
    if (columns_first_) {
        between_.resize(static_cast<std::size_t>(to_.h * from_.w));
        resize_columns(plane, stride, 0, from_.w, between_.data());
        resize_rows(between_.data(), from_.w, to_.h, result);
        return;
    }
    // Only the rows between these two are used.
    const std::int64_t top = down_.begin.front(), bottom = down_.end.back();
    between_.resize(static_cast<std::size_t>((bottom - top) * to_.w));
    resize_rows(plane + top * stride, stride, bottom - top, between_.data());
    resize_columns(between_.data(), to_.w, top, to_.w, result);
}

void Resampler::resize_rows(const std::uint8_t* rows, std::int64_t stride, std::int64_t count,
                            std::uint8_t* to) const {
    if (from_.w == to_.w) {
        for (std::int64_t y = 0; y < count; ++y)
            std::memcpy(to + y * to_.w, rows + y * stride, static_cast<std::size_t>(to_.w));
        return;
    }
    for (std::int64_t y = 0; y < count; ++y, rows += stride)
        for (std::int64_t x = 0; x < to_.w; ++x) {
            const auto i = static_cast<std::size_t>(x);
            const std::int32_t* weight = across_.weights.data() + x * across_.most;
            std::int32_t sum = kHalf;
            for (std::int64_t k = across_.begin[i]; k < across_.end[i]; ++k)
                sum += rows[k] * *weight++;
            *to++ = to_byte(sum);
        }
}

void Resampler::resize_columns(const std::uint8_t* rows, std::int64_t stride, std::int64_t top,
                               std::int64_t width, std::uint8_t* to) {
    for (std::int64_t y = 0; y < to_.h; ++y, to += width) {
        const auto i = static_cast<std::size_t>(y);
        const std::int32_t* weight = down_.weights.data() + y * down_.most;
        sums_.assign(static_cast<std::size_t>(width), kHalf);
        for (std::int64_t k = down_.begin[i]; k < down_.end[i]; ++k, ++weight) {
            const std::uint8_t* row = rows + (k - top) * stride;
            for (std::size_t x = 0; x < sums_.size(); ++x) sums_[x] += row[x] * *weight;
        }
        for (std::size_t x = 0; x < sums_.size(); ++x) to[x] = to_byte(sums_[x]);
    }
}

}  // namespace axle::data
