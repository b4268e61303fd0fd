#include "nn/models/vision/mobilenet.h"

#include <string>
#include <utility>

#include "nn/init.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

constexpr double kMobileEps = 1e-3, kMobileMomentum = 0.01;

const MobileNetV3Config& checked_mobilenet(const MobileNetV3Config& config) {
    constexpr const char* kWho = "MobileNetV3";
    check_size(kWho, "stem", config.stem);
    check_size(kWho, "last_channel", config.last_channel);
    check_size(kWho, "num_classes", config.num_classes);
    check_size(kWho, "in_channels", config.in_channels);
    check_size(kWho, "the number of blocks", std::ssize(config.blocks));
    for (std::size_t i = 0; i < config.blocks.size(); ++i) {
        const MobileNetBlock& block = config.blocks[i];
        const std::string prefix = str("blocks[", i, "].");
        check_size(kWho, (prefix + "kernel").c_str(), block.kernel);
        check_size(kWho, (prefix + "expanded").c_str(), block.expanded);
        check_size(kWho, (prefix + "out").c_str(), block.out);
        check_size(kWho, (prefix + "stride").c_str(), block.stride);
    }
    return config;
}

ConvNormOptions mobile_conv(std::int64_t kernel, std::int64_t stride, bool has_hardswish = true) {
    return {.kernel = kernel,
            .stride = stride,
            .activation = has_hardswish ? ConvActivation::hardswish : ConvActivation::relu,
            .eps = kMobileEps,
            .momentum = kMobileMomentum};
}

Linear mobile_linear(std::int64_t in, std::int64_t out) {
    Linear layer(in, out);
    init::normal_(layer.weight, 0, 0.01), init::zeros_(layer.bias);
    return layer;
}

MobileNetV3Config multiplied(MobileNetV3Config config, double width) {
    const auto adjust = [width](std::int64_t& channels) {
        channels = multiple_of_eight(static_cast<double>(channels) * width);
    };
    adjust(config.stem), adjust(config.last_channel);
    for (MobileNetBlock& block : config.blocks) adjust(block.expanded), adjust(block.out);
    return config;
}

}  // namespace

MobileNetV3::MobileNetV3(const MobileNetV3Config& given)
    : config(checked_mobilenet(given)),
      first(config.in_channels, config.stem, mobile_conv(3, 2)),
      last(config.blocks.back().out, 6 * config.blocks.back().out, mobile_conv(1, 1)),
      hidden(mobile_linear(6 * config.blocks.back().out, config.last_channel)),
      classifier(mobile_linear(config.last_channel, config.num_classes)),
      dropout(config.dropout) {
    std::int64_t in = config.stem;
    for (const MobileNetBlock& block : config.blocks) {
        const std::int64_t squeezed =
            block.squeezes ? multiple_of_eight(static_cast<double>(block.expanded / 4)) : 0;
        blocks.emplace_back(InvertedResidualOptions{
            .in = in,
            .expanded = block.expanded,
            .out = block.out,
            .squeezed = squeezed,
            .hard_gate = true,
            .conv = mobile_conv(block.kernel, block.stride, block.hardswish)});
        in = block.out;
    }
}

Tensor MobileNetV3::forward(const Tensor& images) {
    Tensor x = first(images);
    for (InvertedResidual& block : blocks) x = block(x);
    x = adaptive_avg_pool2d(last(x), 1).flatten(1);
    return classifier(dropout(hardswish(hidden(x))));
}

void MobileNetV3::visit(Visitor& v) {
    v("features.0", first);
    for (std::size_t i = 0; i < blocks.size(); ++i) v(str("features.", i + 1), blocks[i]);
    v(str("features.", blocks.size() + 1), last);
    v("classifier.0", hidden), v("classifier.2", dropout), v("classifier.3", classifier);
}

MobileNetV3Config mobilenet_v3_small(double width_mult) {
    return multiplied({.blocks = {{3, 16, 16, true, false, 2},
                                  {3, 72, 24, false, false, 2},
                                  {3, 88, 24, false, false, 1},
                                  {5, 96, 40, true, true, 2},
                                  {5, 240, 40, true, true, 1},
                                  {5, 240, 40, true, true, 1},
                                  {5, 120, 48, true, true, 1},
                                  {5, 144, 48, true, true, 1},
                                  {5, 288, 96, true, true, 2},
                                  {5, 576, 96, true, true, 1},
                                  {5, 576, 96, true, true, 1}},
                       .last_channel = 1024},
                      width_mult);
}

MobileNetV3Config mobilenet_v3_large(double width_mult) {
    return multiplied({.blocks = {{3, 16, 16, false, false, 1},
                                  {3, 64, 24, false, false, 2},
                                  {3, 72, 24, false, false, 1},
                                  {5, 72, 40, true, false, 2},
                                  {5, 120, 40, true, false, 1},
                                  {5, 120, 40, true, false, 1},
                                  {3, 240, 80, false, true, 2},
                                  {3, 200, 80, false, true, 1},
                                  {3, 184, 80, false, true, 1},
                                  {3, 184, 80, false, true, 1},
                                  {3, 480, 112, true, true, 1},
                                  {3, 672, 112, true, true, 1},
                                  {5, 672, 160, true, true, 2},
                                  {5, 960, 160, true, true, 1},
                                  {5, 960, 160, true, true, 1}},
                       .last_channel = 1280},
                      width_mult);
}

}  // namespace axle::nn
