#include "nn/models/resnet.h"

#include "nn/init.h"

namespace axle::nn {
namespace {

constexpr std::int64_t kExpansion = 4;  // the ratio of output channels to bottleneck channels

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                   std::int64_t stride = 1) {
    Conv2d conv(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false});
    init::kaiming_normal_(conv.weight, 0, init::Fan::out);
    return conv;
}

Conv2d stem(const ResNetConfig& config) {
    return config.small_images ? convolution(config.in_channels, 64, 3)
                               : convolution(config.in_channels, 64, 7, 2);
}

}  // namespace

ResNetBlock::ResNetBlock(std::int64_t in, std::int64_t planes, std::int64_t stride, bool bottleneck)
    : conv1(bottleneck ? convolution(in, planes, 1) : convolution(in, planes, 3, stride)),
      bn1(planes),
      conv2(convolution(planes, planes, 3, bottleneck ? stride : 1)),
      bn2(planes) {
    const std::int64_t out = bottleneck ? kExpansion * planes : planes;
    if (bottleneck) {
        conv3.emplace(convolution(planes, out, 1));
        bn3.emplace(out);
    }
    if (stride != 1 || in != out)
        downsample.emplace(convolution(in, out, 1, stride), BatchNorm2d(out));
}

Tensor ResNetBlock::forward(const Tensor& x) {
    Tensor y = relu(bn1(conv1(x)));
    y = bn2(conv2(y));
    if (conv3) y = (*bn3)((*conv3)(relu(y)));
    return relu(y + (downsample ? (*downsample)(x) : x));
}

void ResNetBlock::visit(Visitor& v) {
    v("conv1", conv1), v("bn1", bn1), v("conv2", conv2), v("bn2", bn2);
    if (conv3) v("conv3", *conv3), v("bn3", *bn3);
    if (downsample) v("downsample", *downsample);
}

ResNet::ResNet(const ResNetConfig& given)
    : config(given),
      conv1(stem(given)),
      bn1(64),
      fc(512 * (given.bottleneck ? kExpansion : 1), given.num_classes) {
    std::int64_t in = 64, planes = 64;
    for (std::size_t stage = 0; stage < layers.size(); ++stage, planes *= 2) {
        if (config.layers[stage] < 1)
            throw ValueError(str("ResNet: every stage needs at least one block: layers[", stage,
                                 "] is ", config.layers[stage]));
        for (std::int64_t i = 0; i < config.layers[stage]; ++i) {
            layers[stage].push_back(
                ResNetBlock(in, planes, i == 0 && stage > 0 ? 2 : 1, config.bottleneck));
            in = planes * (config.bottleneck ? kExpansion : 1);
        }
    }
}

Tensor ResNet::forward(const Tensor& images) {
    Tensor x = relu(bn1(conv1(images)));
    if (!config.small_images) x = max_pool2d(x, 3, {.stride = 2, .padding = 1});
    for (auto& stage : layers)
        for (ResNetBlock& block : stage) x = block(x);
    return fc(adaptive_avg_pool2d(x, 1).flatten(1));
}

void ResNet::visit(Visitor& v) {
    v("conv1", conv1), v("bn1", bn1);
    for (std::size_t stage = 0; stage < layers.size(); ++stage)
        v(str("layer", stage + 1), layers[stage]);
    v("fc", fc);
}

ResNetConfig resnet18() { return {.layers = {2, 2, 2, 2}}; }
ResNetConfig resnet34() { return {.layers = {3, 4, 6, 3}}; }
ResNetConfig resnet50() { return {.layers = {3, 4, 6, 3}, .bottleneck = true}; }
ResNetConfig resnet101() { return {.layers = {3, 4, 23, 3}, .bottleneck = true}; }
ResNetConfig resnet152() { return {.layers = {3, 8, 36, 3}, .bottleneck = true}; }

}  // namespace axle::nn
