// Compiled without fused multiply-add, so that the weights are those of Pillow on every machine.
#include "data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace axle::data {
namespace {

double triangle_weight(double x) { return std::max(1 - std::abs(x), 0.0); }

double cubic_weight(double x) {  // Keys, with a = -0.5
    constexpr double kA = -0.5;
    x = std::abs(x);
    if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
    return 0;
}

// Returns the filter that resizes a line.
kernels::ByteFilter make_filter(std::int64_t from, std::int64_t to, Interpolation filter) {
    const bool linear = filter == Interpolation::bilinear;
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double wide = std::max(scale, 1.0);  // a smaller image averages more pixels
    const double support = (linear ? 1.0 : 2.0) * wide, narrow = 1.0 / wide;
    kernels::ByteFilter result;
    std::vector<double> exact;
    std::vector<std::int32_t> rounded;
    for (std::int64_t i = 0; i < to; ++i) {
        const double center = (static_cast<double>(i) + 0.5) * scale;
        const double low = center - support + 0.5, high = center + support + 0.5;
        const auto first = std::max(static_cast<std::int64_t>(low), std::int64_t{0});
        const auto last = std::min(static_cast<std::int64_t>(high), from);
        const auto count = static_cast<std::size_t>(last - first);
        exact.resize(count);
        rounded.resize(count);
        double sum = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const double x =
                (static_cast<double>(first + static_cast<std::int64_t>(k)) - center + 0.5) * narrow;
            exact[k] = linear ? triangle_weight(x) : cubic_weight(x);
            sum += exact[k];
        }
        for (std::size_t k = 0; k < count; ++k) {
            const double w = sum != 0 ? exact[k] / sum : exact[k];
            rounded[k] = static_cast<std::int32_t>((w < 0 ? -0.5 : 0.5) +
                                                   w * (1 << kernels::ByteFilter::kFractionBits));
        }
        result.add(first, rounded);
    }
    return result;
}

}  // namespace

// If a height shrinks by more than twice as many pixels as the width, Pillow 13 filters columns
// first, which changes how pixels are rounded.
Resampler::Resampler(Size2 from, Size2 to, Interpolation filter)
    : from_(from),
      to_(to),
      columns_first_(from.h > to.h && from.h - to.h > 2 * (from.w - to.w)),
      across_(make_filter(from.w, to.w, filter)),
      down_(make_filter(from.h, to.h, filter)) {}

void Resampler::operator()(const std::uint8_t* plane, std::int64_t stride, std::uint8_t* result) {
    const std::int64_t top = down_.begin(), height = down_.end() - top;
    if (from_.h == to_.h && from_.w == to_.w) {
        for (std::int64_t y = 0; y < to_.h; ++y)
            std::copy_n(plane + y * stride, to_.w, result + y * to_.w);
    } else if (from_.h == to_.h) {
        filter_rows(across_, plane, stride, to_.h, result, buffer_);
    } else if (from_.w == to_.w) {
        filter_columns(down_, plane + top * stride, stride, to_.w, result, to_.w);
    } else if (columns_first_) {
        between_.resize(static_cast<std::size_t>(to_.h * from_.w));
        filter_columns(down_, plane + top * stride, stride, from_.w, between_.data(), from_.w);
        filter_rows(across_, between_.data(), from_.w, to_.h, result, buffer_);
    } else {
        between_.resize(static_cast<std::size_t>(height * to_.w));
        filter_rows(across_, plane + top * stride, stride, height, between_.data(), buffer_);
        filter_columns(down_, between_.data(), to_.w, to_.w, result, to_.w);
    }
}

}  // namespace axle::data
