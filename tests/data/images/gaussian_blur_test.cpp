#include "data/images/gaussian_blur.h"

#include <array>
#include <cmath>
#include <set>
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

Tensor blurred(const Tensor& image, Size2 kernel, double sigma) {
    return changed(image, [&](const ByteImage& x) { gaussian_blur(x, kernel, sigma); });
}

TEST(GaussianBlur, SpreadsAPixelOverTheKernel) {
    Tensor image = zeros({1, 40, 70}, {u8});
    image[0][20][33].fill_(255);
    const Tensor wide = blurred(image, {1, 5}, 1e6);
    EXPECT_EQ(wide[0][20].slice(0, 31, 36).to_vector(), std::vector<double>(5, 51));
    EXPECT_EQ(wide.sum().item(), 5 * 51);
    const Tensor high = blurred(image, {3, 1}, 1e6);
    EXPECT_EQ(high.slice(1, 19, 22).slice(2, 33, 34).reshape({3}).to_vector(),
              std::vector<double>(3, 85));
    EXPECT_EQ(high.sum().item(), 3 * 85);
    expect_same_bits(blurred(image, 1, 1), image);
    expect_same_bits(blurred(image, 5, 1e-300), image);
}

// The kernel is as large as reflection permits.
TEST(GaussianBlur, ReflectsTheBorderWithoutTheOutermostPixel) {
    const Tensor image = tensor(std::vector<std::int64_t>{0, 90, 180}, {1, 1, 3}).to(u8);
    // The line is extended to 180, 90, 0, 90, 180, 90, 0.
    EXPECT_EQ(blurred(image, {1, 5}, 1e6).to_vector(), (std::vector<double>{108, 90, 72}));
}

// Covers 32.GaussianBlur.
TEST(GaussianBlur, DrawsSigmaFromTheRangeForEachImage) {
    const Tensor image = augmentation_tensor("rgb");
    auto random = sample_randoms(50);
    const Tensor batch = cat(std::vector<Tensor>(50, image.unsqueeze(0)));
    const Tensor results = GaussianBlur(5, {0.3, 1.5})(batch, random);
    std::set<std::vector<double>> different;
    auto again = sample_randoms(50);
    for (std::int64_t i = 0; i < 50; ++i) {
        const float u = again[static_cast<std::size_t>(i)].uniform();
        const double sigma =
            static_cast<double>(static_cast<float>(0.3 + 1.2 * static_cast<double>(u)));
        expect_same_bits(results[i].contiguous(), blurred(image, 5, sigma));
        different.insert(results[i].to_vector());
    }
    EXPECT_GT(different.size(), 45u);
    // Without a range, torchvision's default is used.
    auto first = sample_randoms(1), same = sample_randoms(1);
    expect_same_bits(GaussianBlur({3, 5})(batch.slice(0, 0, 1), first),
                     GaussianBlur({3, 5}, {0.1, 2.0})(batch.slice(0, 0, 1), same));
}

TEST(GaussianBlur, KeepsShapesAndAcceptsGrayImagesAndFrames) {
    for (const Shape& shape : {Shape{4, 1, 7, 9}, Shape{4, 3, 9, 7}, Shape{4, 6, 5},
                               Shape{4, 2, 3, 6, 6}, Shape{4, 3, 0, 4}}) {
        auto random = sample_randoms(4);
        const Tensor flat = full(shape, 9, {.dtype = u8});
        expect_same_bits(GaussianBlur({5, 3})(flat, random), flat);
    }
}

TEST(GaussianBlur, RejectsInvalidArguments) {
    for (const Size2 size : {Size2(4), Size2(3, 0), Size2(-1, 3), Size2(3, 65537)})
        expect_error<ValueError>({"GaussianBlur: kernel sizes must be odd and in [1, 65535]: ["},
                                 [&] { GaussianBlur{size}; });
    for (const std::array<double, 2> sigma :
         {std::array<double, 2>{0, 1}, {2, 1}, {1, 2e6}, {NAN, 1}})
        expect_error<ValueError>({"GaussianBlur: sigma must be two numbers in (0, 1e6]"},
                                 [&] { GaussianBlur(3, sigma); });
    auto random = sample_randoms(1);
    const GaussianBlur blur({3, 5});
    expect_error<DTypeError>({"GaussianBlur: images must be uint8"}, [&] {
        blur(ones({1, 3, 4, 4}), random);
    });
    expect_error<ShapeError>({"GaussianBlur", "1 or 3 channels"}, [&] {
        blur(ones({1, 2, 4, 4}, {u8}), random);
    });
    expect_error<ShapeError>({"GaussianBlur: images of size [4, 2] are too small for the kernel "
                              "[3, 5]"},
                             [&] {
                                 blur(ones({1, 3, 4, 2}, {u8}), random);
                             });
    expect_error<UsageError>({"GaussianBlur", "one SampleRandom per image"}, [&] {
        blur(ones({2, 3, 4, 4}, {u8}), random);
    });
}

}  // namespace
}  // namespace axle::data
