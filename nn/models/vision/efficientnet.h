// EfficientNet-B0 to -B4 with torchvision's parameter names, so that weights can be exchanged in
// both directions (Tan and Le, arXiv:1905.11946).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/models/vision/blocks.h"

namespace axle::nn {

// A stage of EfficientNet: `layers` blocks. Only the first block has the stride.
struct EfficientNetStage {
    // Channels of the depthwise convolution / input channels, before multiple_of_eight().
    std::int64_t expand_ratio;
    std::int64_t kernel, stride, out, layers;
};

struct EfficientNetConfig {
    std::int64_t stem = 32;  // the channels before the first stage
    std::vector<EfficientNetStage> stages = {};
    std::int64_t num_classes = 1000;
    std::int64_t in_channels = 3;
    double dropout = 0.2;
    // The probability of stochastic depth grows linearly from 0 in the first block to almost this
    // number in the last block.
    double stochastic_depth_prob = 0.2;
};

struct EfficientNet : Model<EfficientNet> {
    // Initializes the weights as torchvision does. Throws ValueError unless all sizes are positive
    // and below 2^31, there is at least one stage, and the probabilities of dropout and of each
    // block's stochastic depth are in [0, 1].
    explicit EfficientNet(const EfficientNetConfig& config);

    // Maps images [N, in_channels, H, W] to logits [N, num_classes]. Throws ShapeError for other
    // shapes.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override;

    EfficientNetConfig config;
    ConvNormActivation first;                          // features.0
    std::vector<ModuleList<InvertedResidual>> stages;  // features.1 and so on
    ConvNormActivation last;                           // the last element of features
    Dropout dropout;
    Linear classifier;  // classifier.1
};

// Return the configurations of the paper, whose fields can be changed before building the model.
EfficientNetConfig efficientnet_b0();
EfficientNetConfig efficientnet_b1();
EfficientNetConfig efficientnet_b2();
EfficientNetConfig efficientnet_b3();
EfficientNetConfig efficientnet_b4();

}  // namespace axle::nn
