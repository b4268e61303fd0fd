// Compiled without fused multiply-add, so that the weights are those of Pillow on every machine.
#include "data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace axle::data {
namespace {

constexpr int kPrecision = 32 - 8 - 2;  // the bits of a weight after the binary point
constexpr std::int32_t kHalf = 1 << (kPrecision - 1);

#if defined(__SSE2__)
constexpr bool kHasBlocks = true;
#else
constexpr bool kHasBlocks = false;
#endif

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

// Blocks are slower than single products for few input pixels, and their sums of low parts would
// overflow for many.
Resampler::Blocks::Blocks(const Weights& weights, std::int64_t from) : length(0) {
    std::int64_t most = 0;
    const std::size_t count = weights.begin.size();
    for (std::size_t i = 0; i < count; ++i)
        most = std::max(most, weights.end[i] - weights.begin[i]);
    const std::int64_t whole = (most + kLanes - 1) / kLanes * kLanes;
    if (!kHasBlocks || most < 4 || count < 4 || whole > from || whole > 4096) return;
    length = whole;
    low.resize(count * static_cast<std::size_t>(whole));
    high.resize(low.size());
    for (std::size_t i = 0; i < count; ++i) {
        // The first input pixels of a block at the end of a line have weights of zero.
        begin.push_back(std::min(weights.begin[i], from - whole));
        for (std::int64_t k = weights.begin[i]; k < weights.end[i]; ++k) {
            const std::int32_t weight =
                weights.weights[i * static_cast<std::size_t>(weights.most) +
                                static_cast<std::size_t>(k - weights.begin[i])];
            const std::size_t at =
                i * static_cast<std::size_t>(whole) + static_cast<std::size_t>(k - begin.back());
            high[at] = static_cast<std::int16_t>(weight >> kLowBits);
            low[at] = static_cast<std::int16_t>(weight & ((1 << kLowBits) - 1));
        }
    }
}

// If a height shrinks by more than twice as many pixels as the width, Pillow 13 filters columns
// first, which changes how pixels are rounded.
Resampler::Resampler(Size2 from, Size2 to, Interpolation filter)
    : from_(from),
      to_(to),
      columns_first_(from.h > to.h && from.h - to.h > 2 * (from.w - to.w)),
      across_(from.w, to.w, filter),
      down_(from.h, to.h, filter),
      blocks_(across_, from.w) {}

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

#if defined(__SSE2__)
void Resampler::resize_row_in_blocks(const std::uint8_t* row, std::uint8_t* to) const {
    const std::int64_t* begin = blocks_.begin.data();
    const std::int64_t length = blocks_.length, width = to_.w;
    const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(kHalf);
    // Returns four sums of products of output pixel x, whose sum is its value without kHalf.
    const auto parts = [&](std::int64_t x) {
        const std::uint8_t* pixels = row + begin[x];
        const std::int16_t *low = blocks_.low.data() + x * length,
                           *high = blocks_.high.data() + x * length;
        const auto load = [](const std::int16_t* from) {
            return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        };
        __m128i low_sum = zero, high_sum = zero;
        for (std::int64_t k = 0; k < length; k += kLanes) {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixels + k));
            const __m128i words = _mm_unpacklo_epi8(bytes, zero);
            low_sum = _mm_add_epi32(low_sum, _mm_madd_epi16(words, load(low + k)));
            high_sum = _mm_add_epi32(high_sum, _mm_madd_epi16(words, load(high + k)));
        }
        return _mm_add_epi32(low_sum, _mm_slli_epi32(high_sum, kLowBits));
    };
    const auto add_pairs = [](__m128i a, __m128i b) {  // a0 + a2, b0 + b2, a1 + a3, b1 + b3
        return _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    };
    for (std::int64_t x = 0; x < width; x += 4) {
        x = std::min(x, width - 4);  // the last four pixels may overlap the ones before
        const __m128i first = add_pairs(parts(x), parts(x + 1));
        const __m128i second = add_pairs(parts(x + 2), parts(x + 3));
        const __m128i sums =
            _mm_add_epi32(_mm_unpacklo_epi64(first, second), _mm_unpackhi_epi64(first, second));
        const __m128i values = _mm_srai_epi32(_mm_add_epi32(sums, half), kPrecision);
        const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(values, zero), zero);
        const std::int32_t four = _mm_cvtsi128_si32(bytes);
        std::memcpy(to + x, &four, sizeof four);
    }
}
#else
void Resampler::resize_row_in_blocks(const std::uint8_t*, std::uint8_t*) const {}
#endif

void Resampler::resize_rows(const std::uint8_t* rows, std::int64_t stride, std::int64_t count,
                            std::uint8_t* to) const {
    if (from_.w == to_.w) {
        for (std::int64_t y = 0; y < count; ++y)
            std::memcpy(to + y * to_.w, rows + y * stride, static_cast<std::size_t>(to_.w));
        return;
    }
    if (blocks_.length > 0) {
        for (std::int64_t y = 0; y < count; ++y)
            resize_row_in_blocks(rows + y * stride, to + y * to_.w);
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
