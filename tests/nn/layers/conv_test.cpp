#include "nn/layers/conv.h"

#include <cmath>

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::expect_same_bits;

// Returns a layer whose weights and bias are all one.
nn::Conv2d summing(Size2 kernel, nn::Conv2dLayerOptions options) {
    nn::Conv2d layer(1, 1, kernel, options);
    const NoGrad no_grad;
    layer.weight.fill_(1);
    if (layer.bias.defined()) layer.bias.fill_(1);
    return layer;
}

TEST(Conv2dLayer, MatchesNamesShapesAndInitialBoundsOfPyTorch) {
    manual_seed(1);
    nn::Conv2d layer(32, 64, {3, 5}, {.groups = 2});
    std::vector<std::string> names;
    for (const auto& [name, tensor] : layer.state_dict()) names.push_back(name);
    EXPECT_THAT(names, ElementsAre("weight", "bias"));
    EXPECT_EQ(layer.weight.shape(), (Shape{64, 16, 3, 5}));
    EXPECT_EQ(layer.bias.shape(), Shape{64});
    const double bound = 1 / std::sqrt(16.0 * 15);
    for (const Tensor& t : {layer.weight, layer.bias}) {
        EXPECT_LE(t.abs().max().item(), bound * (1 + 1e-6));
        EXPECT_GT(t.abs().max().item(), bound * 0.9);
    }
    EXPECT_NEAR(var(layer.weight).item(), bound * bound / 3, 0.02 * bound * bound);
    EXPECT_FALSE(nn::Conv2d(3, 4, 1, {.bias = false}).bias.defined());
}

TEST(Conv2dLayer, AppliesItsOptions) {
    manual_seed(2);
    nn::Conv2d layer(4, 6, 3, {.stride = 2, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2});
    const Tensor x = randn({2, 4, 9, 9});
    expect_same_bits(layer(x).detach(),
                     conv2d(x, layer.weight, layer.bias,
                            {.stride = 2, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2})
                         .detach());
}

TEST(Conv2dLayer, KeepsTheSizeWithSamePadding) {
    for (const std::int64_t kernel : {1, 2, 3, 4, 5})
        for (const std::int64_t dilation : {1, 2, 3}) {
            nn::Conv2d layer(1, 2, {kernel, 3},
                             {.padding = nn::kSamePadding, .dilation = {dilation, 1}});
            EXPECT_EQ(layer(ones({1, 7, 6})).shape(), (Shape{2, 7, 6}));
        }
}

// As in PyTorch, if the number of zeros is odd, the end is padded with one more zero.
TEST(Conv2dLayer, PadsTheEndWithOneMoreZeroForEvenKernelsAndSamePadding) {
    nn::Conv2d layer = summing({1, 2}, {.padding = nn::kSamePadding, .bias = false});
    const Tensor y = layer(tensor({1.0, 2, 3}, {1, 1, 3}));
    EXPECT_THAT(y.to_vector(), ElementsAre(3, 5, 3));
    nn::Conv2d tall = summing({4, 1}, {.padding = nn::kSamePadding, .bias = false});
    EXPECT_THAT(tall(tensor({1.0, 2, 3}, {1, 3, 1})).to_vector(), ElementsAre(6, 6, 5));
}

TEST(Conv2dLayer, PadsTheInputByItsPaddingMode) {
    const Tensor x = tensor({1.0, 2, 4}, {1, 1, 3});
    const auto padded = [&](PadMode mode) {
        return summing({1, 3}, {.padding = {0, 1}, .padding_mode = mode})(x).to_vector();
    };
    EXPECT_THAT(padded(PadMode::constant), ElementsAre(4, 8, 7));
    EXPECT_THAT(padded(PadMode::reflect), ElementsAre(6, 8, 9));
    EXPECT_THAT(padded(PadMode::replicate), ElementsAre(5, 8, 11));
    EXPECT_THAT(padded(PadMode::circular), ElementsAre(8, 8, 8));
}

TEST(Conv2dLayer, RejectsInvalidSizesAndOptions) {
    expect_error<ValueError>({"Conv2d: sizes", "kernel [0, 3]"}, [] { nn::Conv2d(3, 4, {0, 3}); });
    expect_error<ValueError>({"Conv2d: ", "groups", "in 3", "out 4"},
                             [] { nn::Conv2d(3, 4, 3, {.groups = 2}); });
    expect_error<ValueError>({"Conv2d: ", "stride of 1", "[2, 2]"}, [] {
        nn::Conv2d(3, 4, 3, {.stride = 2, .padding = nn::kSamePadding});
    });
}

TEST(ConvTranspose2dLayer, BoundsItsInitialWeightsAndInvertsTheShapeOfConv2d) {
    manual_seed(3);
    nn::Conv2d down(3, 8, 4, {.stride = 2, .padding = 1});
    nn::ConvTranspose2d up(8, 3, 4, {.stride = 2, .padding = 1});
    EXPECT_EQ(up.weight.shape(), (Shape{8, 3, 4, 4}));
    EXPECT_EQ(up.bias.shape(), Shape{3});
    EXPECT_LE(up.weight.abs().max().item(), 1 / std::sqrt(3.0 * 16) * (1 + 1e-6));
    EXPECT_EQ(up(down(ones({2, 3, 10, 12}))).shape(), (Shape{2, 3, 10, 12}));
    nn::ConvTranspose2d odd(8, 3, 3, {.stride = 2, .padding = 1, .output_padding = {1, 0}});
    EXPECT_EQ(odd(ones({8, 5, 5})).shape(), (Shape{3, 10, 9}));
}

}  // namespace
}  // namespace axle
