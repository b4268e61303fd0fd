#include "nn/models/vision/blocks.h"

#include <algorithm>

#include "nn/init.h"

namespace axle::nn {
namespace {

Tensor activated(const Tensor& x, ConvActivation activation) {
    switch (activation) {
        case ConvActivation::none:
            return x;
        case ConvActivation::relu:
            return relu(x);
        case ConvActivation::silu:
            return silu(x);
        case ConvActivation::hardswish:
            return hardswish(x);
    }
    throw ValueError(str("ConvActivation: unknown value ", static_cast<int>(activation)));
}

Conv2d fan_out_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                    const Conv2dLayerOptions& options) {
    Conv2d conv(in, out, kernel, options);
    init::kaiming_normal_(conv.weight, 0, init::Fan::out);
    if (conv.bias.defined()) init::zeros_(conv.bias);
    return conv;
}

ConvNormOptions pointwise(ConvNormOptions options, ConvActivation activation) {
    options.kernel = options.stride = options.dilation = options.groups = 1;
    options.activation = activation;
    return options;
}

ConvNormOptions depthwise_of(const InvertedResidualOptions& options) {
    ConvNormOptions conv = options.conv;
    conv.groups = options.expanded;
    if (conv.dilation > 1) conv.stride = 1;
    return conv;
}

}  // namespace

std::int64_t multiple_of_eight(double channels) {
    const auto nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4) / 8 * 8);
    return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

StochasticDepth::StochasticDepth(double p_) : p(p_) {
    if (!(p >= 0 && p <= 1)) throw ValueError(str("StochasticDepth: p must be in [0, 1]: ", p));
}

Tensor StochasticDepth::forward(const Tensor& x) {
    if (!is_training() || p == 0) return x;
    Shape samples = x.shape();
    for (int i = 1; i < samples.size(); ++i) samples[i] = 1;
    return x * dropout(ones(samples, {.dtype = x.dtype(), .device = x.device()}), p);
}

SqueezeExcitation::SqueezeExcitation(std::int64_t channels, std::int64_t squeezed,
                                     ConvActivation activation_, bool hard_gate_)
    : fc1(fan_out_conv(channels, squeezed, 1, {})),
      fc2(fan_out_conv(squeezed, channels, 1, {})),
      activation(activation_),
      hard_gate(hard_gate_) {}

Tensor SqueezeExcitation::forward(const Tensor& x) {
    const Tensor scale = fc2(activated(fc1(adaptive_avg_pool2d(x, 1)), activation));
    return (hard_gate ? hardsigmoid(scale) : sigmoid(scale)) * x;
}

ConvNormActivation::ConvNormActivation(std::int64_t in, std::int64_t out,
                                       const ConvNormOptions& options)
    : conv(fan_out_conv(in, out, options.kernel,
                        {.stride = options.stride,
                         .padding = (options.kernel - 1) / 2 * options.dilation,
                         .dilation = options.dilation,
                         .groups = options.groups,
                         .bias = false})),
      norm(out, {.eps = options.eps, .momentum = options.momentum}),
      activation(options.activation) {}

Tensor ConvNormActivation::forward(const Tensor& x) { return activated(norm(conv(x)), activation); }

InvertedResidual::InvertedResidual(const InvertedResidualOptions& options)
    : depthwise(options.expanded, options.expanded, depthwise_of(options)),
      project(options.expanded, options.out, pointwise(options.conv, ConvActivation::none)),
      stochastic_depth(options.drop),
      is_residual(options.conv.stride == 1 && options.in == options.out) {
    if (options.expanded != options.in)
        expand.emplace(options.in, options.expanded,
                       pointwise(options.conv, options.conv.activation));
    if (options.squeezed != 0)
        squeeze.emplace(options.expanded, options.squeezed, options.squeeze_activation,
                        options.hard_gate);
}

Tensor InvertedResidual::forward(const Tensor& x) {
    Tensor y = depthwise(expand ? (*expand)(x) : x);
    y = project(squeeze ? (*squeeze)(y) : y);
    return is_residual ? stochastic_depth(y) + x : y;
}

void InvertedResidual::visit(Visitor& v) {
    int i = 0;
    if (expand) v(str("block.", i++), *expand);
    v(str("block.", i++), depthwise);
    if (squeeze) v(str("block.", i++), *squeeze);
    v(str("block.", i), project);
    v("stochastic_depth", stochastic_depth);
}

}  // namespace axle::nn
