// Tests the conversion of tensors to images, and the PNG files of images.
#include "accel/tracking/image.h"

#include <cmath>

#include "accel/tracking/png.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/file_bytes.h"
#include "tests/close.h"

namespace axle {
namespace {

using accel::Image;
using testing::ElementsAre;
using tests::big_endian;
using tests::bytes_of;
using tests::expect_error;
using tests::rows_of;

TEST(Png, ContainsHeaderAndPixels) {
    const std::vector<std::uint8_t> pixels = {1, 2, 3, 4, 5, 6, 250, 251, 252, 253, 254, 255};
    const int types[] = {0, 4, 2, 6};
    for (const int channels : {1, 2, 3, 4}) {
        const std::int64_t width = 12 / (2 * channels), height = 12 / (channels * width);
        const std::vector<std::uint8_t> some(pixels.begin(),
                                             pixels.begin() + height * width * channels);
        const std::string png = accel::encode_png(some, height, width, channels);
        EXPECT_EQ(big_endian(png, 16), width);
        EXPECT_EQ(big_endian(png, 20), height);
        EXPECT_EQ(png.substr(24, 5), bytes_of({8, types[channels - 1], 0, 0, 0}));
        std::string expected;
        const auto row = static_cast<std::size_t>(width * channels);
        for (std::size_t at = 0; at < some.size(); at += row) {
            expected += '\0';
            expected.append(reinterpret_cast<const char*>(some.data() + at), row);
        }
        EXPECT_EQ(rows_of(png), expected);
    }
}

TEST(Png, RejectsInvalidSizes) {
    const std::vector<std::uint8_t> six(6);
    const auto refused = [&](std::int64_t height, std::int64_t width, int channels) {
        expect_error<ValueError>({"encode_png: "},
                                 [&] { accel::encode_png(six, height, width, channels); });
    };
    refused(2, 2, 1);
    refused(0, 6, 1);
    refused(-2, -3, 1);
    refused(1, 1, 6);
    refused(std::int64_t{1} << 32, std::int64_t{1} << 32, 1);
}

std::vector<int> pixels_of(const Image& image) {
    return {image.pixels.begin(), image.pixels.end()};
}

TEST(Image, ReadsTheOrderOfDimensionsFromTheFormat) {
    const Tensor chw = arange(0, 12, 1, {.dtype = i64}).reshape({3, 2, 2});
    const Image image = accel::to_image(chw);
    EXPECT_THAT(pixels_of(image), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
    EXPECT_EQ(pixels_of(accel::to_image(chw.permute({1, 2, 0}), "HWC")), pixels_of(image));
    EXPECT_EQ(pixels_of(accel::to_image(chw.permute({2, 0, 1}), "WCH")), pixels_of(image));
    EXPECT_EQ(accel::to_image(chw[0]).channels, 1);
}

TEST(Image, ConvertsFloatsIntegersAndBooleans) {
    const std::vector<double> values = {-1, 0, 0.5, 1, 2, NAN};
    EXPECT_THAT(pixels_of(accel::to_image(tensor(values, {1, 6}))),
                ElementsAre(0, 0, 127, 255, 255, 0));
    EXPECT_THAT(pixels_of(accel::to_image(tensor({-1, 0, 127, 255, 300}, {1, 5}, {.dtype = i64}))),
                ElementsAre(0, 0, 127, 255, 255));
    EXPECT_THAT(pixels_of(accel::to_image(tensor({0, 1}, {1, 2}).to(boolean))),
                ElementsAre(0, 255));
}

TEST(Image, ArrangesSeveralImagesInAGridOfEightColumns) {
    const Image image = accel::to_image(arange(1, 11, 1, {.dtype = i64}).reshape({10, 1, 1, 1}));
    EXPECT_EQ(image.height, 2);
    EXPECT_EQ(image.width, 8);
    EXPECT_THAT(pixels_of(image), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0));
}

TEST(Image, RejectsInvalidShapesAndFormats) {
    expect_error<ShapeError>({"image: ", "[3]"}, [] { accel::to_image(ones({3})); });
    expect_error<ShapeError>({"image: ", "'HWC'"}, [] { accel::to_image(ones({3, 3}), "HWC"); });
    expect_error<ShapeError>({"image: ", "channels"}, [] { accel::to_image(ones({5, 2, 2})); });
    expect_error<ShapeError>({"image: "}, [] { accel::to_image(ones({3, 0, 2})); });
    expect_error<ShapeError>({"image: "}, [] { accel::to_image(ones({3, 2}), "NC"); });
    expect_error<ValueError>({"image: ", "'HXW'"}, [] { accel::to_image(ones({3, 1, 2}), "HXW"); });
    expect_error<ValueError>({"image: ", "'HHW'"}, [] { accel::to_image(ones({3, 1, 2}), "HHW"); });
}

}  // namespace
}  // namespace axle
