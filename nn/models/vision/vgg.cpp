#include "nn/models/vision/vgg.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "nn/init.h"
#include "nn/layers/conv.h"
#include "nn/layers/norm.h"
#include "nn/layers/pool.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

constexpr std::int64_t kVggPlane = 7;  // the height and width of the averaged features

const VggConfig& checked_vgg(const VggConfig& config) {
    constexpr const char* kWho = "Vgg";
    check_size(kWho, "num_classes", config.num_classes);
    check_size(kWho, "in_channels", config.in_channels);
    check_size(kWho, "hidden", config.hidden);
    if (std::ranges::count(config.layers, 0) == std::ssize(config.layers))
        throw ValueError(
            str("Vgg: layers must contain at least one convolution: ",
                config.layers.empty() ? "it is empty" : "it contains only 0 (pooling)"));
    for (std::size_t i = 0; i < config.layers.size(); ++i)
        if (config.layers[i] != 0)
            check_size(kWho, str("layers[", i, "]").c_str(), config.layers[i]);
    return config;
}

Linear vgg_linear(std::int64_t in, std::int64_t out) {
    Linear layer(in, out);
    init::normal_(layer.weight, 0, 0.01), init::zeros_(layer.bias);
    return layer;
}

std::int64_t vgg_features(const VggConfig& config) {
    std::int64_t channels = 0;
    for (const std::int64_t layer : config.layers) channels = layer == 0 ? channels : layer;
    return channels * kVggPlane * kVggPlane;
}

// Returns a configuration whose five stages have the given numbers of convolutions.
VggConfig vgg_of(std::initializer_list<int> convolutions, bool batch_norm) {
    VggConfig config{.batch_norm = batch_norm};
    std::int64_t channels = 64;
    for (const int count : convolutions) {
        config.layers.insert(config.layers.end(), static_cast<std::size_t>(count), channels);
        config.layers.push_back(0);
        channels = std::min<std::int64_t>(512, 2 * channels);
    }
    return config;
}

}  // namespace

Vgg::Vgg(const VggConfig& given)
    : config(checked_vgg(given)),
      fc1(vgg_linear(vgg_features(config), config.hidden)),
      fc2(vgg_linear(config.hidden, config.hidden)),
      fc3(vgg_linear(config.hidden, config.num_classes)),
      dropout(config.dropout) {
    std::int64_t in = config.in_channels;
    for (const std::int64_t out : config.layers) {
        if (out == 0) {
            features.push_back(MaxPool2d(2));
            continue;
        }
        Conv2d conv(in, out, 3, {.padding = 1});
        init::kaiming_normal_(conv.weight, 0, init::Fan::out);
        init::zeros_(conv.bias);
        features.push_back(std::move(conv));
        if (config.batch_norm) features.push_back(BatchNorm2d(out));
        features.push_back([](const Tensor& x) { return relu(x); });
        in = out;
    }
}

Tensor Vgg::forward(const Tensor& images) {
    const Tensor x = adaptive_avg_pool2d(features(images), kVggPlane).flatten(1);
    return fc3(dropout(fc2(dropout(fc1(x, Activation::relu)), Activation::relu)));
}

void Vgg::visit(Visitor& v) {
    v("features", features);
    v("classifier.0", fc1), v("classifier.3", fc2), v("classifier.6", fc3);
    v("classifier.5", dropout);
}

VggConfig vgg11() { return vgg_of({1, 1, 2, 2, 2}, false); }
VggConfig vgg13() { return vgg_of({2, 2, 2, 2, 2}, false); }
VggConfig vgg16() { return vgg_of({2, 2, 3, 3, 3}, false); }
VggConfig vgg19() { return vgg_of({2, 2, 4, 4, 4}, false); }
VggConfig vgg11_bn() { return vgg_of({1, 1, 2, 2, 2}, true); }
VggConfig vgg13_bn() { return vgg_of({2, 2, 2, 2, 2}, true); }
VggConfig vgg16_bn() { return vgg_of({2, 2, 3, 3, 3}, true); }
VggConfig vgg19_bn() { return vgg_of({2, 2, 4, 4, 4}, true); }

}  // namespace axle::nn
