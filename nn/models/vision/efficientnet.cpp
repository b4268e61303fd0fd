#include "nn/models/vision/efficientnet.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "nn/init.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

const EfficientNetConfig& checked_efficientnet(const EfficientNetConfig& config) {
    constexpr const char* kWho = "EfficientNet";
    check_size(kWho, "stem", config.stem);
    check_size(kWho, "num_classes", config.num_classes);
    check_size(kWho, "in_channels", config.in_channels);
    check_size(kWho, "the number of stages", std::ssize(config.stages));
    for (std::size_t i = 0; i < config.stages.size(); ++i) {
        const EfficientNetStage& stage = config.stages[i];
        const std::string prefix = str("stages[", i, "].");
        check_size(kWho, (prefix + "expand_ratio").c_str(), stage.expand_ratio);
        check_size(kWho, (prefix + "kernel").c_str(), stage.kernel);
        check_size(kWho, (prefix + "stride").c_str(), stage.stride);
        check_size(kWho, (prefix + "out").c_str(), stage.out);
        check_size(kWho, (prefix + "layers").c_str(), stage.layers);
    }
    return config;
}

ConvNormOptions efficient_conv(std::int64_t kernel, std::int64_t stride) {
    return {.kernel = kernel, .stride = stride, .activation = ConvActivation::silu};
}

Linear efficient_classifier(std::int64_t in, std::int64_t classes) {
    Linear layer(in, classes);
    const double bound = 1 / std::sqrt(static_cast<double>(classes));
    init::uniform_(layer.weight, -bound, bound), init::zeros_(layer.bias);
    return layer;
}

EfficientNetConfig efficientnet_of(double width, double depth, double dropout) {
    EfficientNetConfig config{.stages = {{1, 3, 1, 16, 1},
                                         {6, 3, 2, 24, 2},
                                         {6, 5, 2, 40, 2},
                                         {6, 3, 2, 80, 3},
                                         {6, 5, 1, 112, 3},
                                         {6, 5, 2, 192, 4},
                                         {6, 3, 1, 320, 1}},
                              .dropout = dropout};
    const auto adjust = [width](std::int64_t& channels) {
        channels = multiple_of_eight(static_cast<double>(channels) * width);
    };
    adjust(config.stem);
    for (EfficientNetStage& stage : config.stages) {
        adjust(stage.out);
        stage.layers =
            static_cast<std::int64_t>(std::ceil(static_cast<double>(stage.layers) * depth));
    }
    return config;
}

}  // namespace

EfficientNet::EfficientNet(const EfficientNetConfig& given)
    : config(checked_efficientnet(given)),
      first(config.in_channels, config.stem, efficient_conv(3, 2)),
      last(config.stages.back().out, 4 * config.stages.back().out, efficient_conv(1, 1)),
      dropout(config.dropout),
      classifier(efficient_classifier(4 * config.stages.back().out, config.num_classes)) {
    std::int64_t all = 0, in = config.stem;
    for (const EfficientNetStage& stage : config.stages) all += stage.layers;
    std::int64_t number = 0;
    for (const EfficientNetStage& stage : config.stages) {
        ModuleList<InvertedResidual>& blocks = stages.emplace_back();
        for (std::int64_t i = 0; i < stage.layers; ++i, ++number) {
            blocks.push_back(InvertedResidual(InvertedResidualOptions{
                .in = in,
                .expanded = multiple_of_eight(static_cast<double>(in * stage.expand_ratio)),
                .out = stage.out,
                .squeezed = std::max<std::int64_t>(1, in / 4),
                .squeeze_activation = ConvActivation::silu,
                .conv = efficient_conv(stage.kernel, i == 0 ? stage.stride : 1),
                .drop = config.stochastic_depth_prob * static_cast<double>(number) /
                        static_cast<double>(all)}));
            in = stage.out;
        }
    }
}

Tensor EfficientNet::forward(const Tensor& images) {
    Tensor x = first(images);
    for (ModuleList<InvertedResidual>& stage : stages)
        for (InvertedResidual& block : stage) x = block(x);
    return classifier(dropout(adaptive_avg_pool2d(last(x), 1).flatten(1)));
}

void EfficientNet::visit(Visitor& v) {
    v("features.0", first);
    for (std::size_t i = 0; i < stages.size(); ++i) v(str("features.", i + 1), stages[i]);
    v(str("features.", stages.size() + 1), last);
    v("classifier.0", dropout), v("classifier.1", classifier);
}

EfficientNetConfig efficientnet_b0() { return efficientnet_of(1.0, 1.0, 0.2); }
EfficientNetConfig efficientnet_b1() { return efficientnet_of(1.0, 1.1, 0.2); }
EfficientNetConfig efficientnet_b2() { return efficientnet_of(1.1, 1.2, 0.3); }
EfficientNetConfig efficientnet_b3() { return efficientnet_of(1.2, 1.4, 0.3); }
EfficientNetConfig efficientnet_b4() { return efficientnet_of(1.4, 1.8, 0.4); }

}  // namespace axle::nn
