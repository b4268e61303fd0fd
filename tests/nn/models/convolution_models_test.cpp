// Compares VGG, MobileNetV3, EfficientNet, the larger ResNets and UNet with torchvision and
// diffusers (tests/golden/record_networks.py), and tests their errors and StochasticDepth.
#include "core/random.h"
#include "nn/init.h"
#include "nn/models/resnet.h"
#include "nn/models/vision/efficientnet.h"
#include "nn/models/vision/mobilenet.h"
#include "nn/models/vision/unet.h"
#include "nn/models/vision/vgg.h"
#include "tests/nn/models/network.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_recorded_classifier;
using tests::integers;

// Expects that a model has the names and shapes of a torchvision model of full size, and returns
// the number of its parameters. The weights have no memory.
template <class Model, class Config>
std::int64_t expect_torchvision_state(const std::string& name, const Config& config) {
    const nn::init::EmptyWeights without_memory;
    const Model model(config);
    const Tree recorded = tests::recorded_network("torchvision_states");
    tests::expect_state(recorded[name], model.state_dict());
    return model.num_parameters();
}

TEST(ResNet101And152, MatchNamesAndShapesOfTorchvision) {
    EXPECT_EQ(expect_torchvision_state<nn::ResNet>("resnet101", nn::resnet101()), 44549160);
    EXPECT_EQ(expect_torchvision_state<nn::ResNet>("resnet152", nn::resnet152()), 60192808);
}

// --- VGG

nn::VggConfig small_vgg(bool batch_norm) {
    return {.layers = {8, 0, 12, 12, 0},
            .batch_norm = batch_norm,
            .num_classes = 10,
            .dropout = 0,
            .hidden = 20};
}

TEST(Vgg, TrainsLikeTorchvision) {
    expect_recorded_classifier("vgg", 8, tests::sgd(1e-2),
                               [] { return nn::Vgg(small_vgg(false)); });
}

TEST(Vgg, TrainsLikeTorchvisionWithBatchNormalization) {
    expect_recorded_classifier("vgg_bn", 8, tests::sgd(1e-2),
                               [] { return nn::Vgg(small_vgg(true)); });
}

TEST(Vgg, MatchesNamesAndShapesOfTorchvision) {
    EXPECT_EQ(expect_torchvision_state<nn::Vgg>("vgg11", nn::vgg11()), 132863336);
    EXPECT_EQ(expect_torchvision_state<nn::Vgg>("vgg16_bn", nn::vgg16_bn()), 138365992);
    EXPECT_EQ(expect_torchvision_state<nn::Vgg>("vgg19", nn::vgg19()), 143667240);
}

TEST(Vgg, RejectsLayersWithoutConvolutionsAndNegativeChannels) {
    expect_error<ValueError>({"Vgg: layers must contain at least one convolution"}, [] {
        nn::Vgg(nn::VggConfig{.layers = {0, 0}});
    });
    expect_error<ValueError>({"Vgg: layers[1] must be positive: -1"}, [] {
        nn::Vgg(nn::VggConfig{.layers = {8, -1}});
    });
}

// --- MobileNetV3 and EfficientNet

TEST(MobileNetV3, TrainsLikeTorchvision) {
    expect_recorded_classifier("mobilenet", 32, tests::sgd(1e-3), [] {
        return nn::MobileNetV3({.stem = 8,
                                .blocks = {{3, 8, 8, true, false, 2},
                                           {3, 24, 16, false, false, 2},
                                           {5, 32, 16, true, true, 1}},
                                .last_channel = 20,
                                .num_classes = 10,
                                .dropout = 0});
    });
}

TEST(MobileNetV3, MatchesNamesAndShapesOfTorchvision) {
    EXPECT_EQ(
        expect_torchvision_state<nn::MobileNetV3>("mobilenet_v3_small", nn::mobilenet_v3_small()),
        2542856);
    EXPECT_EQ(
        expect_torchvision_state<nn::MobileNetV3>("mobilenet_v3_large", nn::mobilenet_v3_large()),
        5483032);
}

TEST(EfficientNet, TrainsLikeTorchvision) {
    expect_recorded_classifier("efficientnet", 32, tests::sgd(1e-3), [] {
        return nn::EfficientNet({.stem = 8,
                                 .stages = {{1, 3, 1, 8, 1}, {4, 3, 2, 16, 2}, {4, 5, 2, 16, 2}},
                                 .num_classes = 10,
                                 .dropout = 0,
                                 .stochastic_depth_prob = 0});
    });
}

// The numbers are from torchvision's documentation.
TEST(EfficientNet, MatchesNamesShapesAndParameterCountsOfTorchvision) {
    EXPECT_EQ(expect_torchvision_state<nn::EfficientNet>("efficientnet_b0", nn::efficientnet_b0()),
              5288548);
    const nn::init::EmptyWeights without_memory;
    EXPECT_EQ(nn::EfficientNet(nn::efficientnet_b1()).num_parameters(), 7794184);
    EXPECT_EQ(nn::EfficientNet(nn::efficientnet_b2()).num_parameters(), 9109994);
    EXPECT_EQ(nn::EfficientNet(nn::efficientnet_b3()).num_parameters(), 12233232);
    EXPECT_EQ(nn::EfficientNet(nn::efficientnet_b4()).num_parameters(), 19341616);
}

TEST(StochasticDepth, DropsWholeSamplesInTrainingOnlyAndRejectsInvalidProbabilities) {
    manual_seed(1);
    nn::StochasticDepth layer(0.25);
    const Tensor x = ones({400, 2, 3}), y = layer(x);
    const Tensor samples = y.reshape({400, 6});
    tests::expect_same_bits(samples, samples.narrow(1, 0, 1).expand({400, 6}).contiguous());
    const double kept = ne(samples.select(1, 0), 0).to(f64).mean().item();
    EXPECT_NEAR(kept, 0.75, 0.08);
    EXPECT_NEAR(y.max().item(), 1 / 0.75, 1e-6);
    EXPECT_EQ(nn::StochasticDepth(1)(x).abs().max().item(), 0);
    layer.eval();
    EXPECT_TRUE(layer(x).is_same(x));
    expect_error<ValueError>({"StochasticDepth: p must be in [0, 1]"},
                             [] { nn::StochasticDepth{1.5}; });
}

// --- UNet

nn::UNetConfig small_unet() {
    return {.block_out_channels = {8, 16},
            .attention = {false, true},
            .layers_per_block = 1,
            .attention_head_dim = 4,
            .norm_num_groups = 4,
            .num_class_embeds = 5};
}

TEST(UNet, LearnsToPredictNoiseLikeDiffusers) {
    tests::expect_recorded_state("unet", nn::UNet(small_unet()).state_dict());
    for (const DType dtype : {f64, f32}) {
        nn::UNet model(small_unet());
        const auto noise = [dtype](std::int64_t batch) {
            return (tests::uniform_of({4, 3, 8, 8}, str("noise", batch)) * 3).to(dtype);
        };
        tests::expect_recorded_training(
            "unet", model, dtype, tests::adamw(1e-3),
            [&](std::int64_t batch) {
                const Tensor times = integers({4}, str("times", batch), 1000);
                const Tensor signal =
                    ((1000 - times).to(f64) / 1000).to(dtype).reshape({4, 1, 1, 1});
                const Tensor noisy = signal.sqrt() * tests::images(8, batch, dtype) +
                                     (1 - signal).sqrt() * noise(batch);
                return model(noisy, times, integers({4}, str("classes", batch), 5));
            },
            [&](const Tensor& y, std::int64_t batch) { return mse_loss(y, noise(batch)); });
    }
}

TEST(UNet, AcceptsOneTimeForAllImages) {
    nn::UNetConfig config = small_unet();
    config.num_class_embeds.reset();
    config.attention_head_dim.reset();
    nn::UNet model(config);
    const Tensor x = tests::images(8, 0, f32);
    EXPECT_EQ(model(x, tensor({3})).shape(), Shape({4, 3, 8, 8}));
    tests::expect_close(model(x, tensor({3})).detach(), model(x, tensor({3, 3, 3, 3})).detach(),
                        1e-6);
}

TEST(UNet, ReportsInvalidConfigurationsAndInputs) {
    nn::UNet model(small_unet());
    const Tensor x = zeros({2, 3, 8, 8}), times = zeros({2}, {i64}), classes = times;
    expect_error<ValueError>({"UNet: the model needs classes"}, [&] { model(x, times); });
    expect_error<ShapeError>({"UNet: x must be [N, 3, H, W]", "multiples of 2", "[2, 3, 8, 7]"},
                             [&] {
                                 model(zeros({2, 3, 8, 7}), times, classes);
                             });
    expect_error<ShapeError>({"UNet: times must be [1] or [2]"},
                             [&] { model(x, zeros({3}), classes); });
    nn::UNetConfig config = small_unet();
    config.norm_num_groups = 3;
    expect_error<ValueError>({"UNet: norm_num_groups 3 must divide block_out_channels[0]: 8"},
                             [&] { nn::UNet{config}; });
    config = small_unet();
    config.attention = {true};
    expect_error<ValueError>({"UNet: block_out_channels and attention must have the same number"},
                             [&] { nn::UNet{config}; });
    config = small_unet();
    config.attention_head_dim = 5;
    expect_error<ValueError>({"UNet: attention_head_dim 5 must divide block_out_channels[1]: 16"},
                             [&] { nn::UNet{config}; });
}

TEST(TimestepEmbedding, HasTheOrderAndFrequenciesOfDiffusersAndRejectsOddSizes) {
    const Tensor y = nn::timestep_embedding(tensor({0, 2}), 4, false, 1, f64);
    const std::vector<double> expected = {
        0, 0, 1, 1, std::sin(2), std::sin(2e-4), std::cos(2), std::cos(2e-4)};
    tests::expect_close(y, tensor(expected, {2, 4}, {.dtype = f64}), 1e-12);
    expect_error<ValueError>({"timestep_embedding: size"},
                             [] { nn::timestep_embedding(zeros({2}), 3); });
}

}  // namespace
}  // namespace axle
