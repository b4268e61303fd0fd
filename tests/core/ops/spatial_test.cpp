// Tests properties of the ops of core/spatial.h that the op cases do not cover.
#include "core/spatial.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle::tests {

namespace {

// Returns 0, 1, 2, ... in the given shape.
Tensor counting(const Shape& shape) { return reshape(arange(numel(shape), {f64}), shape); }

TEST(Conv3d, AcceptsHugeStrideForSingleWindow) {
    constexpr std::int64_t kFar = INT32_MAX;
    const Tensor x = randn({2, 3, 3, 4, 5}), w = randn({4, 3, 3, 3, 5});
    expect_same_bits(conv3d(x, w, {}, {.stride = {kFar, 2, kFar}}),
                     conv3d(x, w, {}, {.stride = {1, 2, 1}}));
    const Tensor pixel = randn({2, 4, 1, 1, 1});
    expect_same_bits(conv_transpose3d(pixel, w, {}, {.stride = kFar}), conv_transpose3d(pixel, w));
}

TEST(Conv3d, IsTheSumOfConvolutionsOfFrames) {
    const Tensor x = randn({1, 2, 5, 6, 7}, {f64}), w = randn({3, 2, 2, 3, 3}, {f64});
    const Tensor y = conv3d(x, w, {}, {.stride = {2, 1, 1}, .padding = {1, 0, 0}});
    ASSERT_EQ(y.shape(), (Shape{1, 3, 3, 4, 5}));
    for (std::int64_t o = 0; o < 3; ++o) {
        Tensor frame = conv2d(select(x, 2, 2 * o < 5 ? 2 * o : 0), select(w, 2, 1));
        if (o > 0) frame = frame + conv2d(select(x, 2, 2 * o - 1), select(w, 2, 0));
        expect_close(select(y, 2, o), frame, 1e-13);
    }
}

TEST(ConvTranspose3d, IsAdjointOfConv3d) {
    manual_seed(9);
    const Tensor x = randn({2, 6, 5, 11, 9}, {f64}), w = randn({8, 3, 2, 3, 4}, {f64});
    const Size3 stride = {3, 2, 3}, padding = {1, 1, 2};
    const Tensor y = conv3d(x, w, {}, {.stride = stride, .padding = padding, .groups = 2});
    const Tensor g = randn(y.shape(), {f64});
    const Tensor back = conv_transpose3d(
        g, w, {}, {.stride = stride, .padding = padding, .output_padding = {2, 0, 0}, .groups = 2});
    ASSERT_EQ(back.shape(), x.shape());
    EXPECT_NEAR(sum(y * g).item(), sum(back * x).item(), 1e-10);
}

TEST(MaxPool3d, IgnoresPaddingAndReturnsValidPositions) {
    const double low = -std::numeric_limits<double>::infinity();
    const auto [y, at] =
        max_pool3d_with_indices(full({1, 2, 2, 2}, low), 3, {.stride = 2, .padding = 1});
    EXPECT_EQ(y.to_vector(), std::vector<double>(1, low));
    EXPECT_EQ(at.to_vector(), std::vector<double>(1, 0));
    // The windows contain only padding.
    const auto [empty, position] =
        max_pool3d_with_indices(ones({1, 1, 1, 1}), 2, {.padding = 1, .dilation = 2});
    EXPECT_EQ(empty.item(), low);
    EXPECT_EQ(position.to_vector(), std::vector<double>(1, 0));
}

TEST(MaxPool3d, ReturnsPositionsInVolumes) {
    const Tensor x = counting({2, 3, 4, 5, 6});
    const auto [y, at] = max_pool3d_with_indices(x, {2, 3, 1}, {.stride = Size3(1, 2, 5)});
    const Tensor volumes = flatten(x, 2);
    expect_same_bits(y, reshape(gather(volumes, -1, flatten(at, 2)), y.shape()));
}

TEST(AvgPool3d, DividesByWindowSizeByValidElementsOrByGivenDivisor) {
    const Tensor x = ones({1, 3, 3, 3});
    const auto corner = [&](const AvgPool3dOptions& options) {
        return avg_pool3d(x, 2, options).to_vector()[0];
    };
    EXPECT_EQ(corner({.padding = 1}), 0.125);
    EXPECT_EQ(corner({.padding = 1, .count_include_pad = false}), 1);
    EXPECT_EQ(corner({.padding = 1, .divisor_override = 4}), 0.25);
    // The sum of a plane exceeds the range of f16, but the mean does not.
    const Tensor large = full({1, 2, 8, 8}, 60000, {f16});
    EXPECT_EQ(avg_pool3d(large, {2, 8, 8}, {.divisor_override = 256}).item(), 30000);
}

TEST(MaxUnpool, ReturnsTensorThatMaxPoolMapsBackToTheMaximaAndAcceptsAnOutputSize) {
    const Tensor x = counting({2, 2, 4, 6});
    const auto [y, at] = max_pool2d_with_indices(x, 2);
    const Tensor sparse = max_unpool2d(y, at, 2);
    const auto [again, positions] = max_pool2d_with_indices(sparse, 2);
    expect_same_bits(again, y);
    EXPECT_EQ(max_unpool1d(ones({1, 3}), zeros({1, 3}, {i64}), 2, {.output_size = 7}).shape(),
              (Shape{1, 7}));
}

TEST(LpPool, ComputesNormsAndTheGradientOfAWindowNextToAWindowOfZeros) {
    Tensor x = tensor({0.0, 0, 3, 4}, {1, 4}).set_requires_grad();
    const Tensor y = lp_pool1d(x, 2, 2);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 5}));
    y.sum().backward();
    EXPECT_NEAR(x.grad().to_vector()[2], 0.6, 1e-7);
}

TEST(FractionalMaxPool, DrawsIncreasingWindowsOfEachPlaneFromTheDefaultGenerator) {
    const Tensor x = counting({1, 3, 20, 20});
    const auto draw = [&](std::uint64_t seed) {
        manual_seed(seed);
        return fractional_max_pool2d_with_indices(x, 2, {.output_ratio = 0.6}).second;
    };
    const Tensor at = draw(1);
    ASSERT_EQ(at.shape(), (Shape{1, 3, 12, 12}));
    expect_same_bits(draw(1), at);
    EXPECT_GT(sum(ne(draw(2), at)).item(), 0);
    EXPECT_GT(sum(ne(select(at, 1, 0), select(at, 1, 1))).item(), 0) << "planes share windows";
    // The last windows end at the ends of the rows and columns, and positions increase along each
    // row.
    EXPECT_EQ(at.to_vector().back(), 399);
    EXPECT_GE(min(diff(at, 1, -1)).item(), 1);
    EXPECT_EQ(fractional_max_pool3d(counting({2, 5, 6, 7}), 2, {.output_size = 3}).shape(),
              (Shape{2, 3, 3, 3}));
}

}  // namespace

}  // namespace axle::tests
