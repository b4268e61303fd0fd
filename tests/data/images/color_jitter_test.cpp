#include "data/images/color_jitter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/images/byte_image.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/augmentation.h"

namespace axle::data {
namespace {

using tests::augmentation_tensor;
using tests::changed;
using tests::expect_error;
using tests::expect_same_bits;
using tests::sample_randoms;

using Bytes = std::vector<double>;

// Returns n copies of an image as a batch.
Tensor copies(const Tensor& image, std::int64_t n) {
    return cat(std::vector<Tensor>(static_cast<std::size_t>(n), image.unsqueeze(0)));
}

// Returns the red value of a jittered image of one pixel for each of n samples.
Bytes reds(const ColorJitter& jitter, std::int64_t n) {
    auto random = sample_randoms(n);
    return jitter(full({n, 3, 1, 1}, 100, {.dtype = u8}), random)
        .select(1, 0)
        .reshape({n})
        .to_vector();
}

TEST(ColorJitter, DrawsFactorsFromTheWholeRange) {
    const Bytes half = reds(ColorJitter({.brightness = 0.5}), 2000);
    EXPECT_EQ(*std::ranges::min_element(half), 50);
    EXPECT_EQ(*std::ranges::max_element(half), 149);
    double sum = 0;
    for (const double x : half) sum += x;
    EXPECT_NEAR(sum / 2000, 99.5, 2);
    const Bytes range = reds(ColorJitter({.brightness = {1.2, 1.3}}), 2000);
    EXPECT_EQ(*std::ranges::min_element(range), 120);
    EXPECT_EQ(*std::ranges::max_element(range), 129);
    // The range of an amount above 1 begins at 0.
    const Bytes wide = reds(ColorJitter({.brightness = 1.5}), 2000);
    EXPECT_EQ(*std::ranges::min_element(wide), 0);
    EXPECT_GT(*std::ranges::max_element(wide), 245);
}

// With fixed factors, the result shows the order of the four operations.
TEST(ColorJitter, AppliesTheFourOperationsInEveryOrder) {
    const Tensor image = augmentation_tensor("rgb");
    const double b = 1.25, c = 0.5, s = 1.75, h = 0.125;
    const ColorJitter jitter(
        {.brightness = {b, b}, .contrast = {c, c}, .saturation = {s, s}, .hue = {h, h}});
    std::vector<int> order = {0, 1, 2, 3};
    std::set<Bytes> expected;
    do {
        expected.insert(changed(image, [&](const ByteImage& x) {
                            for (const int op : order) {
                                if (op == 0) adjust_brightness(x, b);
                                if (op == 1) adjust_contrast(x, c);
                                if (op == 2) adjust_saturation(x, s);
                                if (op == 3) adjust_hue(x, h);
                            }
                        }).to_vector());
    } while (std::ranges::next_permutation(order).found);
    ASSERT_EQ(expected.size(), 24u);
    auto random = sample_randoms(200);
    const Tensor results = jitter(copies(image, 200), random);
    std::set<Bytes> found;
    for (std::int64_t i = 0; i < 200; ++i) found.insert(results[i].to_vector());
    EXPECT_EQ(found, expected);
}

TEST(ColorJitter, KeepsImagesIfAllAmountsAreZero) {
    const Tensor images = copies(augmentation_tensor("rgb"), 2);
    auto random = sample_randoms(2);
    expect_same_bits(ColorJitter({})(images, random), images);
    expect_same_bits(ColorJitter({.brightness = {1, 1}, .hue = {0, 0}})(images, random), images);
}

TEST(ColorJitter, DependsOnTheSampleAndTheEpochOnly) {
    const ColorJitter jitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1});
    const Tensor images = copies(augmentation_tensor("rgb"), 3);
    auto random = sample_randoms(3);
    const Tensor all = jitter(images, random);
    for (std::int64_t i = 0; i < 3; ++i) {
        auto again = sample_randoms(3);
        const auto one = std::span(again).subspan(static_cast<std::size_t>(i), 1);
        expect_same_bits(jitter(images.narrow(0, i, 1), one), all.narrow(0, i, 1));
    }
    auto next = sample_randoms(3, 1);
    EXPECT_NE(jitter(images, next).to_vector(), all.to_vector());
    EXPECT_NE(all[0].to_vector(), all[1].to_vector());
}

TEST(ColorJitter, UsesOneDrawForTheFramesOfASample) {
    const ColorJitter jitter({.brightness = 0.9, .hue = 0.3});
    const Tensor image = augmentation_tensor("rgb");
    auto random = sample_randoms(1), same = sample_randoms(1);
    const Tensor frames = jitter(copies(image, 2).unsqueeze(0), random);
    ASSERT_EQ(frames.shape(), (Shape{1, 2, 3, 17, 23}));
    const Tensor single = jitter(image.unsqueeze(0), same);
    expect_same_bits(frames.select(1, 0), single);
    expect_same_bits(frames.select(1, 1), single);
}

TEST(ColorJitter, TreatsThreeDimensionsAsGrayImages) {
    const ColorJitter jitter({.brightness = 0.9, .saturation = 0.5, .hue = 0.5});
    const Tensor gray = augmentation_tensor("gray");
    auto random = sample_randoms(1), same = sample_randoms(1);
    expect_same_bits(jitter(gray, random), jitter(gray.unsqueeze(0), same).squeeze(0));
    EXPECT_EQ(jitter(zeros({0, 3, 4, 4}, {u8}), {}).shape(), (Shape{0, 3, 4, 4}));
    auto two = sample_randoms(2);
    EXPECT_EQ(jitter(zeros({2, 3, 0, 4}, {u8}), two).shape(), (Shape{2, 3, 0, 4}));
}

TEST(ColorJitter, RejectsInvalidArguments) {
    expect_error<ValueError>({"ColorJitter: brightness must not be negative: -0.1"},
                             [] { ColorJitter({.brightness = -0.1}); });
    expect_error<ValueError>({"ColorJitter: contrast must not be"},
                             [] { ColorJitter({.contrast = std::nan("")}); });
    expect_error<ValueError>(
        {"ColorJitter: the range of saturation must be in [0, 1e+06]", "2 and 1"}, [] {
            ColorJitter({.saturation = {2, 1}});
        });
    expect_error<ValueError>({"ColorJitter: the range of brightness must be in [0, 1e+06]"}, [] {
        ColorJitter({.brightness = std::numeric_limits<double>::infinity()});
    });
    expect_error<ValueError>({"ColorJitter: the range of hue must be in [-0.5, 0.5]"},
                             [] { ColorJitter({.hue = 0.6}); });
}

TEST(ColorJitter, RejectsInvalidImages) {
    const ColorJitter jitter({.brightness = 0.5});
    auto random = sample_randoms(1);
    expect_error<UsageError>({"ColorJitter: the images are undefined"},
                             [&] { jitter(Tensor(), random); });
    expect_error<DTypeError>({"ColorJitter: images must be uint8: they are float32"}, [&] {
        jitter(ones({1, 3, 2, 2}), random);
    });
    expect_error<ShapeError>({"ColorJitter: images must be [n, ..., height, width]", "[2, 2]"},
                             [&] {
                                 jitter(ones({2, 2}, {u8}), random);
                             });
    expect_error<ShapeError>({"ColorJitter: images must have 1 or 3 channels", "[1, 4, 2, 2]"},
                             [&] {
                                 jitter(ones({1, 4, 2, 2}, {u8}), random);
                             });
    expect_error<UsageError>({"ColorJitter: needs one SampleRandom per image: 2 images, 1 given"},
                             [&] {
                                 jitter(ones({2, 3, 2, 2}, {u8}), random);
                             });
}

TEST(RandomGrayscale, RemovesColorsWithItsProbability) {
    const Tensor image = augmentation_tensor("rgb");
    const Tensor gray = changed(image, grayscale);
    auto random = sample_randoms(1000);
    const Tensor results = RandomGrayscale(0.3)(copies(image, 1000), random);
    int grays = 0;
    for (std::int64_t i = 0; i < 1000; ++i) {
        const bool same = results[i].to_vector() == image.to_vector();
        if (!same) expect_same_bits(results[i].clone(), gray);
        grays += !same;
    }
    EXPECT_NEAR(grays, 300, 60);
    expect_error<ValueError>({"RandomGrayscale: p must be in [0, 1]: 2"},
                             [] { RandomGrayscale(2); });
    expect_error<ShapeError>({"RandomGrayscale: images must have 1 or 3 channels"}, [&] {
        RandomGrayscale()(ones({1000, 2, 4, 4}, {u8}), random);
    });
}

}  // namespace
}  // namespace axle::data
