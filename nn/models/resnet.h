// ResNet-18, -34, -50, -101 and -152 with torchvision's parameter names, so that weights can be
// exchanged in both directions (He et al., arXiv:1512.03385). As in torchvision, the stride of a
// bottleneck block is in its 3 x 3 convolution.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "nn/layers/container.h"
#include "nn/layers/conv.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"

namespace axle::nn {

struct ResNetConfig {
    std::array<std::int64_t, 4> layers = {2, 2, 2, 2};  // numbers of blocks in the four stages
    // Selects bottleneck blocks. A block consists of 1 x 1, 3 x 3 and 1 x 1 convolutions; the last
    // convolution has four times as many output channels as the first.
    bool bottleneck = false;
    std::int64_t num_classes = 1000;
    std::int64_t in_channels = 3;
    // Selects the first layers for small images, such as CIFAR's: one 3 x 3 convolution with stride
    // 1, without pooling.
    bool small_images = false;
};

struct ResNetBlock : Model<ResNetBlock> {
    // `planes` is the number of output channels, or a quarter of it in bottleneck blocks. Throws
    // ValueError unless in and planes are positive.
    ResNetBlock(std::int64_t in, std::int64_t planes, std::int64_t stride, bool bottleneck);
    // Maps [N, in, H, W] to [N, channels, ceil(H / stride), ceil(W / stride)].
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override;

    Conv2d conv1;
    BatchNorm2d bn1;
    Conv2d conv2;
    BatchNorm2d bn2;
    std::optional<Conv2d> conv3;  // only in bottleneck blocks
    std::optional<BatchNorm2d> bn3;
    std::optional<Sequential> downsample;  // only if the block changes the shape
};

struct ResNet : Model<ResNet> {
    // Initializes the weights as torchvision does. Throws ValueError unless all sizes and numbers
    // of blocks are positive.
    explicit ResNet(const ResNetConfig& config);

    // Maps images [N, in_channels, H, W] to logits [N, num_classes]. Throws ShapeError for other
    // shapes.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override;

    ResNetConfig config;
    Conv2d conv1;
    BatchNorm2d bn1;
    std::array<ModuleList<ResNetBlock>, 4> layers;  // layer1 to layer4
    Linear fc;
};

// Return the configurations of the paper, whose fields can be changed before building the model.
ResNetConfig resnet18();
ResNetConfig resnet34();
ResNetConfig resnet50();
ResNetConfig resnet101();
ResNetConfig resnet152();

}  // namespace axle::nn
