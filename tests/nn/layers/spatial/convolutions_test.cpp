#include "nn/layers/spatial/convolutions.h"

#include <cmath>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::expect_same_bits;

std::vector<std::string> names_of(nn::Module& layer) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : layer.state_dict()) names.push_back(name);
    return names;
}

// Expects the bound and the variance of the uniform distribution in [-bound, bound).
void expect_uniform(const Tensor& t, double bound) {
    EXPECT_LE(t.abs().max().item(), bound * (1 + 1e-6));
    EXPECT_NEAR(var(t).item(), bound * bound / 3, 0.03 * bound * bound);
}

// Sets weight and bias to ones.
template <class Layer>
Layer summing(Layer layer) {
    const NoGrad no_grad;
    layer.weight.fill_(1);
    if (layer.bias.defined()) layer.bias.fill_(1);
    return layer;
}

TEST(Conv1dLayer, MatchesNamesShapesAndInitialBoundsOfPyTorch) {
    manual_seed(1);
    nn::Conv1d layer(32, 64, 5, {.groups = 2});
    EXPECT_THAT(names_of(layer), ElementsAre("weight", "bias"));
    EXPECT_EQ(layer.weight.shape(), (Shape{64, 16, 5}));
    EXPECT_EQ(layer.bias.shape(), Shape{64});
    expect_uniform(layer.weight, 1 / std::sqrt(16.0 * 5));
    EXPECT_FALSE(nn::Conv1d(3, 4, 1, {.bias = false}).bias.defined());
}

TEST(Conv3dLayer, MatchesNamesShapesAndInitialBoundsOfPyTorch) {
    manual_seed(1);
    nn::Conv3d layer(16, 32, {2, 3, 1}, {.groups = 2});
    EXPECT_THAT(names_of(layer), ElementsAre("weight", "bias"));
    EXPECT_EQ(layer.weight.shape(), (Shape{32, 8, 2, 3, 1}));
    expect_uniform(layer.weight, 1 / std::sqrt(8.0 * 6));
    nn::ConvTranspose3d back(16, 32, {2, 3, 1}, {.groups = 2});
    EXPECT_EQ(back.weight.shape(), (Shape{16, 16, 2, 3, 1}));
    EXPECT_EQ(back.bias.shape(), Shape{32});
    expect_uniform(back.weight, 1 / std::sqrt(16.0 * 6));
}

TEST(SpatialConvolutionLayers, ApplyTheirOptions) {
    manual_seed(2);
    const Tensor signal = randn({2, 4, 9}), volume = randn({2, 4, 5, 6, 7});
    nn::Conv1d conv1(4, 6, 3, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2});
    expect_same_bits(conv1(signal).detach(),
                     conv1d(signal, conv1.weight, conv1.bias,
                            {.stride = 2, .padding = 2, .dilation = 2, .groups = 2})
                         .detach());
    nn::Conv3d conv3(4, 6, {2, 3, 3}, {.stride = {1, 2, 1}, .padding = {2, 0, 1}, .groups = 2});
    expect_same_bits(conv3(volume).detach(),
                     conv3d(volume, conv3.weight, conv3.bias,
                            {.stride = {1, 2, 1}, .padding = {2, 0, 1}, .groups = 2})
                         .detach());
    nn::ConvTranspose1d back1(
        4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .dilation = 2});
    expect_same_bits(
        back1(signal).detach(),
        conv_transpose1d(
            signal, back1.weight, back1.bias,
            {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .dilation = 2})
            .detach());
    nn::ConvTranspose3d back3(4, 2, 2, {.stride = {2, 1, 2}, .output_padding = {1, 0, 1}});
    expect_same_bits(back3(volume).detach(),
                     conv_transpose3d(volume, back3.weight, back3.bias,
                                      {.stride = {2, 1, 2}, .output_padding = {1, 0, 1}})
                         .detach());
}

TEST(SpatialConvolutionLayers, KeepTheSizeWithSamePadding) {
    for (const std::int64_t kernel : {1, 2, 3, 4})
        for (const std::int64_t dilation : {1, 2, 3}) {
            nn::Conv1d line(1, 2, kernel, {.padding = nn::kSamePadding, .dilation = dilation});
            EXPECT_EQ(line(ones({1, 7})).shape(), (Shape{2, 7}));
            nn::Conv3d volume(1, 2, {kernel, 3, 2},
                              {.padding = nn::kSamePadding, .dilation = {dilation, 1, 1}});
            EXPECT_EQ(volume(ones({1, 5, 6, 4})).shape(), (Shape{2, 5, 6, 4}));
        }
}

// As in PyTorch, if the number of zeros is odd, the end is padded with one more zero.
TEST(SpatialConvolutionLayers, PadTheEndWithOneMoreZeroForEvenKernelsAndSamePadding) {
    auto line = summing(nn::Conv1d(1, 1, 2, {.padding = nn::kSamePadding, .bias = false}));
    EXPECT_THAT(line(tensor({1.0, 2, 3}, {1, 3})).to_vector(), ElementsAre(3, 5, 3));
    auto deep = summing(nn::Conv3d(1, 1, {4, 1, 1}, {.padding = nn::kSamePadding, .bias = false}));
    EXPECT_THAT(deep(tensor({1.0, 2, 3}, {1, 3, 1, 1})).to_vector(), ElementsAre(6, 6, 5));
}

TEST(SpatialConvolutionLayers, PadTheInputByTheirPaddingMode) {
    const auto line = [](PadMode mode) {
        auto layer = summing(nn::Conv1d(1, 1, 3, {.padding = 1, .padding_mode = mode}));
        return layer(tensor({1.0, 2, 4}, {1, 1, 3})).to_vector();
    };
    EXPECT_THAT(line(PadMode::constant), ElementsAre(4, 8, 7));
    EXPECT_THAT(line(PadMode::reflect), ElementsAre(6, 8, 9));
    EXPECT_THAT(line(PadMode::replicate), ElementsAre(5, 8, 11));
    EXPECT_THAT(line(PadMode::circular), ElementsAre(8, 8, 8));
    const auto deep = [](PadMode mode) {
        auto layer =
            summing(nn::Conv3d(1, 1, {3, 1, 1}, {.padding = {1, 0, 0}, .padding_mode = mode}));
        return layer(tensor({1.0, 2, 4}, {1, 3, 1, 1})).to_vector();
    };
    EXPECT_THAT(deep(PadMode::reflect), ElementsAre(6, 8, 9));
    EXPECT_THAT(deep(PadMode::circular), ElementsAre(8, 8, 8));
}

TEST(TransposedConvolutionLayers, RestoreTheInputShapesOfConvolutions) {
    nn::Conv1d down1(3, 8, 4, {.stride = 2, .padding = 1});
    nn::ConvTranspose1d up1(8, 3, 4, {.stride = 2, .padding = 1});
    EXPECT_EQ(up1(down1(ones({2, 3, 10}))).shape(), (Shape{2, 3, 10}));
    nn::Conv3d down3(3, 8, 4, {.stride = 2, .padding = 1});
    nn::ConvTranspose3d up3(8, 3, 4, {.stride = 2, .padding = 1});
    EXPECT_EQ(up3(down3(ones({2, 3, 4, 6, 8}))).shape(), (Shape{2, 3, 4, 6, 8}));
}

TEST(TransposedConvolutionLayers, ReturnResultsOfAGivenSizeAndRejectInvalidSizes) {
    nn::ConvTranspose1d line(3, 2, 3, {.stride = 3, .padding = 1, .dilation = 2});
    const Tensor signal = randn({2, 3, 4});
    for (const std::int64_t extra : {0, 1, 2}) {
        const Tensor y =
            conv_transpose1d(signal, line.weight, line.bias,
                             {.stride = 3, .padding = 1, .output_padding = extra, .dilation = 2});
        expect_same_bits(line(signal, y.size(-1)).detach(), y.detach());
    }
    nn::ConvTranspose2d plane(3, 2, 3, {.stride = {2, 1}, .padding = 1});
    EXPECT_EQ(plane(ones({3, 5, 5}), Size2(10, 5)).shape(), (Shape{2, 10, 5}));
    nn::ConvTranspose3d volume(3, 2, 3, {.stride = {2, 3, 1}, .output_padding = {1, 0, 0}});
    EXPECT_EQ(volume(ones({2, 3, 2, 2, 2}), Size3(5, 8, 4)).shape(), (Shape{2, 2, 5, 8, 4}));
    EXPECT_EQ(volume(ones({2, 3, 2, 2, 2})).shape(), (Shape{2, 2, 6, 6, 4}));
    expect_error<ValueError>({"ConvTranspose1d: output_size", "[12]", "[15]"},
                             [&] { line(signal, 15); });
    expect_error<ValueError>({"ConvTranspose2d: output_size", "[9, 5]", "[8, 5]"}, [&] {
        plane(ones({3, 5, 5}), Size2(8, 5));
    });
    expect_error<ShapeError>({"conv_transpose3d: x must be"}, [&] {
        volume(ones({3, 2}), Size3(5, 8, 4));
    });
}

TEST(SpatialConvolutionLayers, RejectInvalidSizesAndOptions) {
    expect_error<ValueError>({"Conv1d: sizes", "kernel [0]"}, [] { nn::Conv1d(3, 4, 0); });
    expect_error<ValueError>({"Conv3d: sizes", "kernel [1, 0, 3]"}, [] {
        nn::Conv3d(3, 4, {1, 0, 3});
    });
    expect_error<ValueError>({"ConvTranspose1d: groups", "in 3", "out 4"},
                             [] { nn::ConvTranspose1d(3, 4, 3, {.groups = 2}); });
    expect_error<ValueError>({"ConvTranspose3d: sizes"}, [] { nn::ConvTranspose3d(0, 4, 3); });
    expect_error<ValueError>({"Conv1d: kSamePadding", "[2]"}, [] {
        nn::Conv1d(3, 4, 3, {.stride = 2, .padding = nn::kSamePadding});
    });
    expect_error<ValueError>({"Conv3d: kSamePadding", "[1, 1, 2]"}, [] {
        nn::Conv3d(3, 4, 3, {.stride = {1, 1, 2}, .padding = nn::kSamePadding});
    });
}

}  // namespace
}  // namespace axle
