#include "data/images/random_erasing.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/images/random_window.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/augmentation.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::sample_randoms;

TEST(RandomErasing, DrawsTheBoxesOfTorchvision) {
    int boxes = 0, none = 0;
    for (const auto& one : tests::augmentation("erased")) {
        SCOPED_TRACE(one.dump());
        const std::vector<float> numbers = one["numbers"];
        std::size_t used = 0;
        const auto window = erased_window(
            {one["size"][0], one["size"][1]}, {one["scale"][0], one["scale"][1]},
            {one["ratio"][0], one["ratio"][1]}, [&] { return numbers.at(used++); },
            [&](std::int64_t n) {
                return static_cast<std::int64_t>(static_cast<double>(numbers.at(used++)) *
                                                 static_cast<double>(n));
            });
        EXPECT_EQ(used, one["used"].get<std::size_t>());
        EXPECT_EQ(window.has_value(), !one["box"].is_null());
        (window ? boxes : none) += 1;
        if (!window) continue;
        EXPECT_EQ((std::vector{window->top, window->left, window->size.h, window->size.w}),
                  one["box"].get<std::vector<std::int64_t>>());
    }
    EXPECT_GT(boxes, 3);
    EXPECT_GT(none, 1) << "no case without a box";
}

// Returns the fraction of the pixels of each image that are not `value` in channel 0.
std::vector<double> changed_parts(const Tensor& images, double value) {
    std::vector<double> parts;
    for (std::int64_t i = 0; i < images.size(0); ++i)
        parts.push_back((images[i][0] != value).to(f64).mean().item());
    return parts;
}

TEST(RandomErasing, ErasesWithItsProbabilityAndAreas) {
    auto random = sample_randoms(1000);
    const Tensor images = ones({1000, 1, 50, 40});
    const auto parts =
        changed_parts(RandomErasing({.p = 0.3, .scale = {0.1, 0.2}})(images, random), 1);
    const auto kept = std::ranges::count(parts, 0.0);
    EXPECT_NEAR(static_cast<double>(kept), 700, 50);
    double least = 1, most = 0;
    for (const double part : parts)
        if (part > 0) least = std::min(least, part), most = std::max(most, part);
    EXPECT_NEAR(least, 0.1, 0.01);
    EXPECT_NEAR(most, 0.2, 0.01);
    auto more = sample_randoms(10);
    expect_same_bits(RandomErasing({.p = 0})(images.narrow(0, 0, 10), more),
                     images.narrow(0, 0, 10));
    EXPECT_EQ(std::ranges::count(
                  changed_parts(RandomErasing({.p = 1})(images.narrow(0, 0, 10), more), 1), 0.0),
              0);
}

// The window is the one that the same random numbers give.
TEST(RandomErasing, WritesTheValueOfEachChannelToTheWindow) {
    for (const DType dtype : {u8, f32, f64}) {
        const Tensor image = full({1, 3, 20, 30}, 7, {.dtype = dtype});
        auto random = sample_randoms(1), same = sample_randoms(1);
        const Tensor result = RandomErasing({.p = 1, .value = {1, 2, 3}})(image, random);
        same[0].uniform();  // for p
        const RandomErasingOptions defaults;
        const auto window = erased_window(
            {20, 30}, defaults.scale, defaults.ratio, [&] { return same[0].uniform(); },
            [&](std::int64_t n) { return same[0].below(n); });
        ASSERT_TRUE(window.has_value());
        Tensor expected = image.clone();
        for (std::int64_t c = 0; c < 3; ++c)
            expected.narrow(1, c, 1)
                .narrow(2, window->top, window->size.h)
                .narrow(3, window->left, window->size.w)
                .fill_(static_cast<double>(c + 1));
        expect_same_bits(result, expected);
    }
}

TEST(RandomErasing, WritesRandomValues) {
    auto random = sample_randoms(20);
    const RandomErasing noise({.p = 1, .scale = {0.3, 0.4}, .random = true});
    const Tensor images = full({20, 3, 40, 40}, 100.0);
    const Tensor floats = noise(images, random);
    const Tensor drawn = masked_select(floats, floats != 100);
    EXPECT_GT(drawn.numel(), 20 * 3 * 40 * 40 / 4);
    EXPECT_NEAR(drawn.mean().item(), 0, 0.03);
    EXPECT_NEAR(drawn.pow(2).mean().item(), 1, 0.03);
    auto more = sample_randoms(20);
    const Tensor bytes = noise(zeros({20, 3, 40, 40}, {u8}), more);
    const Tensor set = masked_select(bytes, bytes != 0).to(f64);
    EXPECT_EQ(set.max().item(), 255);
    EXPECT_NEAR(set.mean().item(), 128, 1);
}

TEST(RandomErasing, DependsOnTheSampleAndTheEpochOnly) {
    const RandomErasing erasing({.p = 1, .random = true});
    const Tensor images = ones({3, 2, 16, 16});
    auto random = sample_randoms(3), last = sample_randoms(3), next = sample_randoms(3, 1);
    const Tensor all = erasing(images, random);
    expect_same_bits(erasing(images.narrow(0, 2, 1), std::span(last).last(1)), all.narrow(0, 2, 1));
    EXPECT_NE(erasing(images, next).to_vector(), all.to_vector());
}

TEST(RandomErasing, RejectsInvalidArguments) {
    expect_error<ValueError>({"RandomErasing: p must be in [0, 1]: 1.5"},
                             [] { RandomErasing({.p = 1.5}); });
    expect_error<ValueError>({"RandomErasing: scale must be two numbers in [0, 1]", "0.5 and 0.2"},
                             [] {
                                 RandomErasing({.scale = {0.5, 0.2}});
                             });
    for (const double bad : {0.0, -1.0, std::nan(""), 1e7})
        expect_error<ValueError>({"RandomErasing: ratio must be two numbers in (0, 1e6]"}, [&] {
            RandomErasing({.ratio = {bad, bad}});
        });
    expect_error<ValueError>({"RandomErasing: value must not be empty"},
                             [] { RandomErasing({.value = {}}); });
}

TEST(RandomErasing, RejectsInvalidImages) {
    auto random = sample_randoms(1);
    const RandomErasing erasing;
    expect_error<UsageError>({"RandomErasing: the images are undefined"},
                             [&] { erasing(Tensor(), random); });
    expect_error<DTypeError>({"RandomErasing: images must be uint8, float32 or float64"}, [&] {
        erasing(ones({1, 3, 4, 4}, {i64}), random);
    });
    expect_error<ShapeError>({"RandomErasing: images must be [n, ..., height, width]"}, [&] {
        erasing(ones({4, 4}), random);
    });
    expect_error<UsageError>({"RandomErasing: needs one SampleRandom per image: 2 images, 1 given"},
                             [&] {
                                 erasing(ones({2, 3, 4, 4}), random);
                             });
    expect_error<ShapeError>({"RandomErasing: value must have 1 element or one for each channel",
                              "2 elements", "[1, 3, 4, 4]"},
                             [&] {
                                 RandomErasing({.value = {1, 2}})(ones({1, 3, 4, 4}), random);
                             });
    expect_error<ValueError>({"RandomErasing: the value for uint8 images must be in [0, 255]: 256"},
                             [&] {
                                 RandomErasing({.value = {256}})(ones({1, 3, 4, 4}, {u8}), random);
                             });
}

}  // namespace
}  // namespace axle::data
