#include "nn/layers/pool.h"

#include "nn/layers/activation.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_same_bits;

TEST(PoolingLayers, MatchTheirFunctionsInSequential) {
    nn::Sequential net(nn::MaxPool2d(3, {.stride = 2, .padding = 1}), nn::ReLU(),
                       nn::AdaptiveAvgPool2d({2, 3}), nn::Flatten(), nn::Linear(5 * 2 * 3, 4));
    const Tensor x = randn({2, 5, 9, 11});
    const Tensor pooled =
        adaptive_avg_pool2d(relu(max_pool2d(x, 3, {.stride = 2, .padding = 1})), {2, 3});
    const auto parameters = net.state_dict();
    ASSERT_EQ(parameters.size(), 2u);
    EXPECT_EQ(parameters[0].first, "4.weight");
    expect_same_bits(net(x).detach(), linear(pooled.flatten(1), parameters[0].second.detach(),
                                             parameters[1].second.detach()));
}

TEST(PoolingLayers, ApplyTheirOptionsAndAreCloned) {
    const Tensor x = randn({2, 3, 7, 9});
    nn::AvgPool2d average({2, 3}, {.stride = 2, .padding = 1, .count_include_pad = false});
    expect_same_bits(
        average(x), avg_pool2d(x, {2, 3}, {.stride = 2, .padding = 1, .count_include_pad = false}));
    nn::AdaptiveMaxPool2d largest({2, 4});
    expect_same_bits(largest(x), adaptive_max_pool2d(x, {2, 4}));
    expect_same_bits(nn::MaxPool2d(2).clone()(x), max_pool2d(x, 2));
}

TEST(Upsample, MatchesInterpolateInBilinearMode) {
    const Tensor x = randn({2, 3, 7, 9});
    nn::Upsample twice({.scale_factor = 2, .mode = Interpolation::bilinear});
    expect_same_bits(twice(x),
                     interpolate(x, {.scale_factor = 2, .mode = Interpolation::bilinear}));
}

TEST(Upsample, MatchesInterpolateInAllModesExceptBilinear) {
    const Tensor signal = randn({2, 3, 5}), image = randn({2, 3, 5, 4}),
                 volume = randn({2, 3, 2, 5, 4});
    for (const auto& [x, mode] : {std::pair(signal, Interpolation::linear),
                                  {signal, Interpolation::nearest_exact},
                                  {image, Interpolation::bicubic},
                                  {image, Interpolation::area},
                                  {volume, Interpolation::trilinear},
                                  {volume, Interpolation::nearest}}) {
        const InterpolateOptions options = {.scale_factor = 1.5, .mode = mode};
        nn::Upsample layer(options);
        expect_same_bits(layer(x), interpolate(x, options));
    }
}

TEST(UpsamplingLayers, MatchInterpolateWithFixedModes) {
    const Tensor x = randn({2, 3, 7, 9});
    nn::UpsamplingNearest2d nearest({.size = Size2(5, 12)});
    expect_same_bits(nearest(x), interpolate(x, {.size = Size2(5, 12)}));
    nn::UpsamplingBilinear2d bilinear({.scale_factor = 2});
    expect_same_bits(bilinear(x), interpolate(x, {.scale_factor = 2,
                                                  .mode = Interpolation::bilinear,
                                                  .align_corners = true}));
}

TEST(Flatten, FlattensTheGivenRangeOfDimensions) {
    const Tensor x = randn({3, 5, 2});
    expect_same_bits(nn::Flatten()(x), flatten(x, 1));
    expect_same_bits(nn::Flatten(0, 1)(x), flatten(x, 0, 1));
}

}  // namespace
}  // namespace axle
