#include "data/images/resize.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/images/random_window.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/pictures.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::recorded;

std::vector<SampleRandom> randoms(std::int64_t n, std::int64_t epoch = 0) {
    std::vector<SampleRandom> random;
    for (std::int64_t i = 0; i < n; ++i) random.emplace_back(SampleRandom::epoch_key(3, epoch), i);
    return random;
}

// The sizes of record_pictures.py before and after.
struct Sizes {
    Size2 from, to;
};
constexpr Sizes kSizes[] = {{{13, 19}, {5, 7}},   {{13, 19}, {26, 38}}, {{13, 19}, {13, 8}},
                            {{13, 19}, {31, 19}}, {{13, 19}, {40, 3}},  {{13, 19}, {1, 1}},
                            {{1, 19}, {4, 6}},    {{13, 1}, {7, 5}},    {{1, 1}, {3, 4}},
                            {{2, 3}, {17, 16}},   {{32, 24}, {15, 11}}, {{29, 13}, {11, 9}},
                            {{17, 9}, {6, 21}},   {{21, 10}, {10, 5}}};

TEST(Resize, GivesTheBytesOfPillow) {
    for (const auto& [from, to] : kSizes)
        for (const std::string kind : {"rgb", "gray"})
            for (const auto& [filter, name] : {std::pair(Interpolation::bilinear, ".bilinear"),
                                               {Interpolation::bicubic, ".bicubic"}}) {
                const std::string before = str("resize.", kind, ".", from.h, "x", from.w);
                const std::string after = str(before, ".", to.h, "x", to.w, name);
                SCOPED_TRACE(after);
                const Tensor image = recorded(before).unsqueeze(0);
                expect_same_bits(Resize(to, filter)(image).squeeze(0), recorded(after));
            }
}

TEST(Resize, ComputesTheLongerSideAsTorchvision) {
    const Tensor sizes = recorded("shorter_side");
    for (std::int64_t i = 0; i < sizes.size(0); ++i) {
        const std::vector<double> row = sizes[i].to_vector();
        const auto at = [&](std::size_t k) { return static_cast<std::int64_t>(row[k]); };
        EXPECT_EQ(Resize(at(2)).size_for({at(0), at(1)}), Size2(at(3), at(4)))
            << at(0) << " x " << at(1) << " to " << at(2);
    }
}

TEST(Resize, KeepsImagesThatHaveTheSizeAndResizesEachImageOfABatch) {
    const Tensor image = recorded("resize.rgb.13x19").unsqueeze(0);
    expect_same_bits(Resize({13, 19})(image), image);
    expect_same_bits(Resize(13)(image), image);
    const Tensor other = flip(image, {3});
    const Tensor both = Resize({5, 7})(cat({image, other}));
    expect_same_bits(both.narrow(0, 0, 1), Resize({5, 7})(image));
    expect_same_bits(both.narrow(0, 1, 1), Resize({5, 7})(other));
    const Tensor strided = image.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
    ASSERT_FALSE(strided.is_contiguous());
    expect_same_bits(Resize({5, 7})(strided), Resize({5, 7})(image));
    EXPECT_EQ(Resize(4)(zeros({0, 3, 5, 6}, {u8})).shape(), (Shape{0, 3, 4, 4}));
}

TEST(RandomResizedCrop, DrawsTheWindowsOfTorchvision) {
    const auto cases = tests::read_json(tests::picture("crops.json"));
    ASSERT_EQ(cases.size(), 18u);
    std::set<std::size_t> draws;
    for (const auto& one : cases) {
        const std::vector<float> numbers = one["numbers"];
        std::size_t used = 0;
        const RandomResizedCropOptions options = {.scale = {one["scale"][0], one["scale"][1]},
                                                  .ratio = {one["ratio"][0], one["ratio"][1]}};
        const ImageWindow window = random_window(
            {one["size"][0], one["size"][1]}, options, [&] { return numbers.at(used++); },
            [&](std::int64_t n) {
                return static_cast<std::int64_t>(static_cast<double>(numbers.at(used++)) *
                                                 static_cast<double>(n));
            });
        EXPECT_EQ(used, one["used"].get<std::size_t>()) << one;
        EXPECT_EQ((std::vector{window.top, window.left, window.size.h, window.size.w}),
                  one["box"].get<std::vector<std::int64_t>>())
            << one;
        draws.insert(used);
    }
    EXPECT_TRUE(draws.contains(4)) << "no case whose first window fits";
    EXPECT_TRUE(draws.contains(20)) << "no case without a window that fits";
}

TEST(RandomResizedCrop, ResizesTheWindowOfEachImage) {
    const Tensor image = recorded("resize.rgb.32x24").unsqueeze(0);
    const Tensor batch = cat({image, image, image});
    auto random = randoms(3), same = randoms(3);
    const Tensor crops =
        RandomResizedCrop({9, 6}, {.filter = Interpolation::bicubic})(batch, random);
    ASSERT_EQ(crops.shape(), (Shape{3, 3, 9, 6}));
    for (std::int64_t i = 0; i < 3; ++i) {
        SampleRandom& draw = same[static_cast<std::size_t>(i)];
        const ImageWindow window = random_window(
            {32, 24}, {}, [&] { return draw.uniform(); },
            [&](std::int64_t n) { return draw.below(n); });
        const Tensor part =
            image.narrow(2, window.top, window.size.h).narrow(3, window.left, window.size.w);
        expect_same_bits(crops.narrow(0, i, 1), Resize({9, 6}, Interpolation::bicubic)(part));
    }
}

TEST(RandomResizedCrop, DependsOnTheSampleAndTheEpochOnly) {
    const Tensor image = recorded("resize.rgb.32x24").unsqueeze(0);
    const auto crop = [&](std::int64_t sample, std::int64_t epoch) {
        auto random = randoms(sample + 1, epoch);
        return RandomResizedCrop(8)(image, std::span(random).last(1)).to_vector();
    };
    EXPECT_EQ(crop(0, 0), crop(0, 0));
    EXPECT_NE(crop(0, 0), crop(1, 0));
    EXPECT_NE(crop(0, 0), crop(0, 1));
}

TEST(RandomResizedCrop, KeepsAreaAndRatioInTheirRanges) {
    auto random = randoms(1);
    const RandomResizedCropOptions options = {.scale = {0.2, 0.5}, .ratio = {0.5, 2}};
    double least = 1, most = 0;
    for (int i = 0; i < 500; ++i) {
        const ImageWindow window = random_window(
            {1000, 1000}, options, [&] { return random[0].uniform(); },
            [&](std::int64_t n) { return random[0].below(n); });
        const auto h = static_cast<double>(window.size.h), w = static_cast<double>(window.size.w);
        least = std::min(least, h * w / 1e6), most = std::max(most, h * w / 1e6);
        EXPECT_TRUE(w / h > 0.49 && w / h < 2.02) << w << " x " << h;
        EXPECT_LE(window.top + window.size.h, 1000);
        EXPECT_LE(window.left + window.size.w, 1000);
    }
    EXPECT_NEAR(least, 0.2, 0.01);
    EXPECT_NEAR(most, 0.5, 0.01);
}

TEST(ResizeTransforms, RejectInvalidArguments) {
    expect_error<ValueError>({"Resize: sizes must be in [1, 2^31): [0, 0]"}, [] { Resize(0); });
    expect_error<ValueError>({"Resize: sizes must be", "[3, -1]"}, [] { Resize({3, -1}); });
    expect_error<ValueError>({"Resize: the filter must be bilinear or bicubic"},
                             [] { Resize(3, Interpolation::area); });
    expect_error<ValueError>({"RandomResizedCrop: sizes must be"}, [] { RandomResizedCrop(0); });
    expect_error<ValueError>({"RandomResizedCrop: the size must have at most 178956970 pixels"},
                             [] { RandomResizedCrop(20000); });
    expect_error<ValueError>({"RandomResizedCrop: scale must be two numbers in (0, 1e6]"}, [] {
        RandomResizedCrop(4, {.scale = {1, 0.5}});
    });
    for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
        expect_error<ValueError>({"RandomResizedCrop: ratio must be two numbers in (0, 1e6]"}, [&] {
            RandomResizedCrop(4, {.ratio = {bad, bad}});
        });
    expect_error<ValueError>({"RandomResizedCrop: the filter must be"},
                             [] { RandomResizedCrop(4, {.filter = Interpolation::nearest}); });
}

TEST(ResizeTransforms, RejectInvalidImages) {
    auto random = randoms(1);
    for (const Transform& transform : {Transform(Resize(4)), Transform(RandomResizedCrop(4))}) {
        EXPECT_THROW(transform(Tensor(), random), UsageError);
        EXPECT_THROW(transform(ones({1, 3, 4, 4}), random), DTypeError);
        EXPECT_THROW(transform(ones({4, 4}, {u8}), random), ShapeError);
        EXPECT_THROW(transform(ones({1, 3, 0, 4}, {u8}), random), ShapeError);
    }
    EXPECT_THROW(RandomResizedCrop(4)(ones({2, 3, 4, 4}, {u8}), random), UsageError);
    // An image of one row would become one of 256 x 25600000 pixels.
    expect_error<ShapeError>({"Resize: images of size [1, 100000] would have the size [256, "}, [] {
        Resize(256)(ones({1, 1, 1, 100000}, {u8}));
    });
}

}  // namespace
}  // namespace axle::data
