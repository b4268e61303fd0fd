#include "nn/layers/spatial/pools.h"

#include "core/ops.h"
#include "core/random.h"
#include "nn/layers/container.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_same_bits;

TEST(SpatialPoolingLayers, MatchTheirFunctionsIn1d) {
    manual_seed(4);
    const Tensor x = randn({2, 3, 13});
    nn::MaxPool1d largest(3, {.stride = 2, .padding = 1, .ceil_mode = true});
    expect_same_bits(largest(x), max_pool1d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true}));
    nn::AvgPool1d average(4, {.padding = 2, .count_include_pad = false});
    expect_same_bits(average(x), avg_pool1d(x, 4, {.padding = 2, .count_include_pad = false}));
    nn::LPPool1d norm(2, 3, {.stride = 1});
    expect_same_bits(norm(x), lp_pool1d(x, 2, 3, {.stride = 1}));
    nn::Sequential net(nn::AdaptiveMaxPool1d(6), nn::AdaptiveAvgPool1d(4));
    expect_same_bits(net(x), adaptive_avg_pool1d(adaptive_max_pool1d(x, 6), 4));
}

TEST(SpatialPoolingLayers, MatchTheirFunctionsIn2dAnd3d) {
    manual_seed(5);
    const Tensor x = randn({2, 3, 6, 7, 8});
    nn::MaxPool3d largest({2, 3, 2}, {.stride = 2, .padding = {1, 0, 1}});
    expect_same_bits(largest(x), max_pool3d(x, {2, 3, 2}, {.stride = 2, .padding = {1, 0, 1}}));
    nn::AvgPool3d average(3, {.padding = 1, .divisor_override = 7});
    expect_same_bits(average(x), avg_pool3d(x, 3, {.padding = 1, .divisor_override = 7}));
    nn::LPPool3d norm(2, {1, 2, 3});
    expect_same_bits(norm(x), lp_pool3d(x, 2, {1, 2, 3}));
    nn::LPPool2d plane_norm(2, 2, {.ceil_mode = true});
    expect_same_bits(plane_norm(x[0]), lp_pool2d(x[0], 2, 2, {.ceil_mode = true}));
    nn::Sequential net(nn::AdaptiveMaxPool3d({3, 4, 5}), nn::AdaptiveAvgPool3d(2));
    expect_same_bits(net(x), adaptive_avg_pool3d(adaptive_max_pool3d(x, {3, 4, 5}), 2));
}

TEST(FractionalMaxPoolLayers, MatchTheirFunctions) {
    const Tensor images = randn({2, 3, 9, 8}), volumes = randn({2, 3, 6, 9, 8});
    nn::FractionalMaxPool2d planes({2, 3}, {.output_ratio = 0.5});
    nn::FractionalMaxPool3d cubes(2, {.output_size = Size3(2, 4, 3)});
    manual_seed(6);
    const Tensor y = planes(images), z = cubes(volumes);
    manual_seed(6);
    expect_same_bits(y, fractional_max_pool2d(images, {2, 3}, {.output_ratio = 0.5}));
    expect_same_bits(z, fractional_max_pool3d(volumes, 2, {.output_size = Size3(2, 4, 3)}));
    EXPECT_TRUE(planes.state_dict().empty());
}

TEST(MaxUnpoolLayers, RestoreMaximaAtTheirPositions) {
    const Tensor line = tensor({1.0, 4, 3, 2, 5}, {1, 5});
    const auto [y, at] = max_pool1d_with_indices(line, 2);
    nn::MaxUnpool1d restore(2);
    expect_close(restore(y, at), tensor({0.0, 4, 3, 0}, {1, 4}));
    expect_close(restore(y, at, 5), tensor({0.0, 4, 3, 0, 0}, {1, 5}));

    const Tensor planes = randn({2, 3, 4, 6}), volumes = randn({2, 3, 4, 2, 6});
    const auto [y2, at2] = max_pool2d_with_indices(planes, 2);
    const Tensor sparse = nn::MaxUnpool2d(2)(y2, at2);
    expect_same_bits(sparse, where(ne(sparse, 0), planes, 0));
    EXPECT_EQ(sum(ne(sparse, 0)).item(), static_cast<double>(y2.numel()));
    expect_same_bits(nn::MaxUnpool2d(2)(y2, at2, Size2(4, 6)), sparse);
    const auto [y3, at3] = max_pool3d_with_indices(volumes, {2, 1, 3});
    const Tensor sparse_volume = nn::MaxUnpool3d({2, 1, 3})(y3, at3);
    expect_same_bits(sparse_volume, where(ne(sparse_volume, 0), volumes, 0));
    expect_same_bits(nn::MaxUnpool3d({2, 1, 3})(y3, at3, Size3(4, 2, 6)), sparse_volume);
}

}  // namespace
}  // namespace axle
