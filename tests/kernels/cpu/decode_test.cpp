#include "kernels/ops/decode.h"

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace axle::kernels {
namespace {

// Returns n bytes. Byte i is 37 i modulo 256, so that 256 bytes have all values.
std::vector<std::uint8_t> bytes(std::int64_t n) {
    std::vector<std::uint8_t> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37);
    return x;
}

TEST(ByteScale, MatchesTheFormulaInF32BitForBit) {
    for (const float mean : {0.0f, 0.5f, 0.4914f, -3.0f, 1e-30f, 1e30f})
        for (const float std : {1.0f, 0.247f, 3e-39f, 1e-20f, 7.7f, 3e38f}) {
            const ByteScale scale(mean, std);
            const std::vector<std::uint8_t> x = bytes(256);
            std::vector<float> y(256);
            scale_bytes(
                {.x = x.data(), .planes = 1, .height = 1, .width = 256, .rows = 1, .columns = 256},
                &scale, 1, y.data());
            for (std::size_t i = 0; i < 256; ++i) {
                const float expected = (static_cast<float>(x[i]) / 255.0f - mean) / std;
                EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i]),
                          std::bit_cast<std::uint32_t>(expected))
                    << int{x[i]} << ": " << mean << ", " << std;
                EXPECT_EQ(y[i], scale[x[i]]);
            }
        }
}

TEST(ScaleBytes, ScalesWindowsThatExceedTheImageWithAndWithoutMirroring) {
    const std::int64_t planes = 4, height = 5;
    const ByteScale scales[] = {{0, 1}, {0.3f, 0.2f}};
    for (const std::int64_t width : {1, 3, 16, 21, 40}) {
        const std::vector<std::uint8_t> x = bytes(planes * height * width);
        for (const std::int64_t top : {-6, -1, 0, 2})
            for (const std::int64_t left : {-41, -3, 0, 2, 50})
                for (const std::int64_t columns : {1, 16, 19, 40})
                    for (const bool mirrored : {false, true}) {
                        const ByteWindow w = {.x = x.data(),
                                              .planes = planes,
                                              .height = height,
                                              .width = width,
                                              .top = top,
                                              .left = left,
                                              .rows = 5,
                                              .columns = columns,
                                              .fill = 9,
                                              .mirrored = mirrored};
                        std::vector<float> y(static_cast<std::size_t>(planes * 5 * columns));
                        scale_bytes(w, scales, 2, y.data());
                        std::size_t at = 0;
                        for (std::int64_t p = 0; p < planes; ++p)
                            for (std::int64_t r = top; r < top + 5; ++r)
                                for (std::int64_t k = 0; k < columns; ++k) {
                                    const auto c = left + (mirrored ? columns - 1 - k : k);
                                    const bool in = r >= 0 && r < height && c >= 0 && c < width;
                                    const auto from = (p * height + r) * width + c;
                                    const auto byte = in ? x[static_cast<std::size_t>(from)] : 9;
                                    ASSERT_EQ(y[at++], scales[p % 2][byte])
                                        << width << ", " << top << ", " << left << ", " << columns
                                        << ", " << mirrored;
                                }
                    }
    }
}

TEST(SeparatePixels, StoresEveryByteInItsPlane) {
    for (std::int64_t n = 0; n < 200; ++n) {
        std::vector<std::uint8_t> x(static_cast<std::size_t>(3 * n));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i + i / 256);
        const std::int64_t plane = n + 2;
        std::vector<std::uint8_t> y(static_cast<std::size_t>(3 * plane), 200);
        std::vector<std::uint8_t> expected = y;
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t c = 0; c < 3; ++c)
                expected[static_cast<std::size_t>(c * plane + i)] =
                    x[static_cast<std::size_t>(3 * i + c)];
        separate_pixels(x.data(), n, y.data(), plane);
        ASSERT_EQ(y, expected) << n;
    }
}

template <class T>
class Widen : public testing::Test {};
using Unsigned = testing::Types<std::uint16_t, std::uint32_t>;
TYPED_TEST_SUITE(Widen, Unsigned);

TYPED_TEST(Widen, ConvertsEveryElementWithoutWritingPastTheEnd) {
    for (std::int64_t n = 0; n < 70; ++n) {
        std::vector<TypeParam> x(static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<TypeParam>(std::numeric_limits<TypeParam>::max() - 3 * i);
        std::vector<std::int64_t> y(x.size() + 1, -1);
        widen(x.data(), y.data(), n);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], std::int64_t{x[i]});
        EXPECT_EQ(y.back(), -1);
    }
}

}  // namespace
}  // namespace axle::kernels
