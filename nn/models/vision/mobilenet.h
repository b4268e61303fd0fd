// MobileNetV3 with torchvision's parameter names, so that weights can be exchanged in both
// directions (Howard et al., arXiv:1905.02244).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/models/vision/blocks.h"

namespace axle::nn {

// A block of MobileNetV3. Its input has as many channels as the output of the previous block.
struct MobileNetBlock {
    std::int64_t kernel, expanded, out;
    bool squeezes = false;   // whether it has squeeze and excitation
    bool hardswish = false;  // if false, the activation is relu
    std::int64_t stride = 1;
};

struct MobileNetV3Config {
    std::int64_t stem = 16;  // the channels before the first block
    std::vector<MobileNetBlock> blocks = {};
    std::int64_t last_channel = 1280;  // the width of the hidden layer of the classifier
    std::int64_t num_classes = 1000;
    std::int64_t in_channels = 3;
    double dropout = 0.2;
};

struct MobileNetV3 : Model<MobileNetV3> {
    // Initializes the weights as torchvision does. Throws ValueError unless all sizes are positive
    // and below 2^31, there is at least one block, and dropout is in [0, 1].
    explicit MobileNetV3(const MobileNetV3Config& config);

    // Maps images [N, in_channels, H, W] to logits [N, num_classes]. Throws ShapeError for other
    // shapes.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override;

    MobileNetV3Config config;
    ConvNormActivation first;              // features.0
    std::vector<InvertedResidual> blocks;  // features.1 and so on
    ConvNormActivation last;               // the last element of features
    Linear hidden, classifier;             // classifier.0 and classifier.3
    Dropout dropout;
};

// Return the configurations of the paper. All numbers of channels except in_channels are multiplied
// by width_mult and rounded by multiple_of_eight().
MobileNetV3Config mobilenet_v3_small(double width_mult = 1);
MobileNetV3Config mobilenet_v3_large(double width_mult = 1);

}  // namespace axle::nn
