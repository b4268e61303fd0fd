#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops/decode.h"

namespace axle::kernels {
namespace {

using Bytes = std::vector<std::uint8_t>;
// The first input pixel and the weights of each output pixel.
struct Weights {
    std::int64_t begin;
    std::vector<std::int32_t> weights;
};

// Returns pseudorandom bytes, which include many zeros and many bytes of 255.
Bytes random_bytes(std::int64_t n) {
    Bytes x(static_cast<std::size_t>(n));
    std::uint32_t state = 12345;
    for (std::uint8_t& byte : x) {
        state = state * 1664525 + 1013904223;
        byte = state >> 30 == 0   ? std::uint8_t{0}
               : state >> 30 == 1 ? std::uint8_t{255}
                                  : static_cast<std::uint8_t>(state >> 16);
    }
    return x;
}

// Returns the weights of `out` output pixels of `taps` input pixels each, from lines of `in`
// pixels. The first input pixel of all is `first`. Their sum is about 1, and some are negative.
std::vector<Weights> weights_for(std::int64_t in, std::int64_t out, std::int64_t taps,
                                 std::int64_t first = 0) {
    std::vector<Weights> result;
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < out; ++i) {
        const std::int64_t begin =
            first + (in - first - taps) * i / std::max<std::int64_t>(out - 1, 1);
        std::vector<std::int32_t> weights;
        std::int32_t left = (1 << ByteFilter::kFractionBits) + 5;
        for (std::int64_t k = 1; k < taps; ++k) {
            state = state * 1664525 + 1013904223;
            weights.push_back(static_cast<std::int32_t>((state >> 9) / taps) -
                              (1 << 20) / static_cast<std::int32_t>(taps));
            left -= weights.back();
        }
        weights.insert(weights.begin() + (i % taps), left);
        result.push_back({begin, weights});
    }
    return result;
}

ByteFilter filter_of(const std::vector<Weights>& weights) {
    ByteFilter filter;
    for (const Weights& w : weights) filter.add(w.begin, w.weights);
    return filter;
}

// Returns the weighted sum of pixels that are `step` bytes apart, rounded and limited to a byte.
std::uint8_t expected_sum(const Weights& w, const std::uint8_t* x, std::int64_t step) {
    std::int64_t sum = std::int64_t{1} << (ByteFilter::kFractionBits - 1);
    for (std::size_t k = 0; k < w.weights.size(); ++k)
        sum += std::int64_t{w.weights[k]} * x[(w.begin + static_cast<std::int64_t>(k)) * step];
    return static_cast<std::uint8_t>(
        std::clamp<std::int64_t>(sum >> ByteFilter::kFractionBits, 0, 255));
}

constexpr std::int64_t kWidths[] = {1,  2,  7,  15, 16, 17, 31,  32,  33,  47,
                                    48, 49, 63, 64, 65, 96, 100, 127, 128, 191};

TEST(FilterColumns, EqualsExactSumsInEveryColumn) {
    for (const std::int64_t width : kWidths)
        for (const std::int64_t taps : {1, 2, 3, 4, 5, 8, 13}) {
            const std::int64_t height = 19, out = 11, stride = width + 3, y_stride = width + 2;
            const Bytes x = random_bytes(height * stride);
            for (const std::int64_t first : {0, 3}) {
                const std::vector<Weights> weights = weights_for(height, out, taps, first);
                const ByteFilter filter = filter_of(weights);
                ASSERT_EQ(filter.begin(), first);
                ASSERT_EQ(filter.end(), height);
                Bytes y(static_cast<std::size_t>(out * y_stride), 77);
                filter_columns(filter, x.data() + first * stride, stride, width, y.data(),
                               y_stride);
                for (std::int64_t i = 0; i < out; ++i)
                    for (std::int64_t c = 0; c < y_stride; ++c)
                        ASSERT_EQ(y[static_cast<std::size_t>(i * y_stride + c)],
                                  c < width ? expected_sum(weights[static_cast<std::size_t>(i)],
                                                           x.data() + c, stride)
                                            : 77)
                            << width << ", " << taps << ": row " << i << ", column " << c;
            }
        }
}

TEST(FilterRows, EqualsExactSumsInEveryRow) {
    Bytes buffer;
    for (const std::int64_t rows : kWidths)
        for (const std::int64_t width : {5, 15, 16, 17, 40, 81, 130})
            for (const std::int64_t out : {1, 3, 16, 31, 33, 64, 77, 150}) {
                const std::int64_t taps = (rows + width + out) % 5 + 1, stride = width + 3;
                const std::int64_t first = out > 3 && width > 5 ? 2 : 0;
                const Bytes x = random_bytes(rows * stride);
                const std::vector<Weights> weights = weights_for(width, out, taps, first);
                Bytes y(static_cast<std::size_t>(rows * out + 1), 77);
                filter_rows(filter_of(weights), x.data(), stride, rows, y.data(), buffer);
                for (std::int64_t r = 0; r < rows; ++r)
                    for (std::int64_t i = 0; i < out; ++i)
                        ASSERT_EQ(y[static_cast<std::size_t>(r * out + i)],
                                  expected_sum(weights[static_cast<std::size_t>(i)],
                                               x.data() + r * stride, 1))
                            << rows << ", " << width << ", " << out << ": row " << r << ", column "
                            << i;
                EXPECT_EQ(y.back(), 77);
            }
}

TEST(FilterColumns, AddsManyRowsExactly) {
    const std::int64_t height = 9001, width = 70;
    const Bytes x(static_cast<std::size_t>(height * width), 255);
    // The lower part of -1 has all bits set: sums of lower parts exceed 32 bits.
    std::vector<std::int32_t> weights(static_cast<std::size_t>(height), -1);
    weights.back() = (1 << ByteFilter::kFractionBits) / 2;
    const Weights all = {0, weights};
    Bytes y(static_cast<std::size_t>(width));
    filter_columns(filter_of({all}), x.data(), width, width, y.data(), width);
    EXPECT_EQ(y, Bytes(y.size(), expected_sum(all, x.data(), width)));
    EXPECT_GT(y.front(), 0);
    EXPECT_LT(y.front(), 255);
}

}  // namespace
}  // namespace axle::kernels
