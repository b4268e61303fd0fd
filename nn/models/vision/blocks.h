// Building blocks of MobileNet and EfficientNet with torchvision's parameter names.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/conv.h"
#include "nn/layers/norm.h"
#include "nn/module.h"

namespace axle::nn {

// Stochastic depth (Huang et al., arXiv:1603.09382). In training mode, sets each sample of x [N,
// ...] to zero with probability p and multiplies the other samples by 1 / (1 - p). In evaluation
// mode, returns x. This is torchvision's StochasticDepth with the mode "row".
class StochasticDepth : public Model<StochasticDepth> {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit StochasticDepth(double p);
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    double p;
};

enum class ConvActivation : std::uint8_t { none, relu, silu, hardswish };

// Squeeze and excitation (Hu et al., arXiv:1709.01507): multiplies the channels of x [N, channels,
// H, W] by gate(fc2(activation(fc1(m)))), where m contains the mean of each channel.
class SqueezeExcitation : public Model<SqueezeExcitation> {
  public:
    // The gate is hardsigmoid if hard_gate is true, otherwise sigmoid. Throws ValueError unless
    // both sizes are positive.
    SqueezeExcitation(std::int64_t channels, std::int64_t squeezed,
                      ConvActivation activation = ConvActivation::relu, bool hard_gate = false);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("fc1", fc1), v("fc2", fc2); }

    Conv2d fc1, fc2;  // 1 x 1
    ConvActivation activation;
    bool hard_gate;
};

struct ConvNormOptions {
    std::int64_t kernel = 3;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
    ConvActivation activation = ConvActivation::relu;
    double eps = 1e-5, momentum = 0.1;  // options of the batch normalization
};
// A convolution without bias, which keeps the image size if the kernel is odd and the stride is 1,
// a batch normalization and an activation. The weights of the convolution have torchvision's
// initial values. The constructor throws the errors of Conv2d and BatchNorm2d.
struct ConvNormActivation : Model<ConvNormActivation> {
    ConvNormActivation(std::int64_t in, std::int64_t out, const ConvNormOptions& options);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("0", conv), v("1", norm); }

    Conv2d conv;
    BatchNorm2d norm;
    ConvActivation activation;
};

struct InvertedResidualOptions {
    std::int64_t in, expanded, out;  // numbers of channels
    std::int64_t squeezed = 0;       // channels of squeeze and excitation, or 0 without it
    bool hard_gate = false;          // argument of SqueezeExcitation
    ConvActivation squeeze_activation = ConvActivation::relu;
    // Options of the depthwise convolution. `groups` is ignored, and a dilation above 1 sets the
    // stride to 1. The other convolutions use eps, momentum and, for the first, the activation.
    ConvNormOptions conv = {};
    double drop = 0;  // the probability of stochastic depth
};
// An inverted residual block: a 1 x 1 convolution to `expanded` channels (unless `expanded` is
// `in`), a depthwise convolution, squeeze and excitation (unless `squeezed` is 0), and a 1 x 1
// convolution to `out` channels. If conv.stride is 1 and `in` is `out`, applies stochastic depth to
// the result and adds the input.
struct InvertedResidual : Model<InvertedResidual> {
    // Throws ValueError unless sizes are positive (`squeezed` can be 0) and `drop` is in [0, 1].
    explicit InvertedResidual(const InvertedResidualOptions& options);
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override;

    std::optional<ConvNormActivation> expand;  // block.0
    ConvNormActivation depthwise;
    std::optional<SqueezeExcitation> squeeze;
    ConvNormActivation project;
    StochasticDepth stochastic_depth;
    bool is_residual;
};

// Returns the multiple of 8 that is nearest to `channels`, at least 8 and at least 0.9 * channels.
std::int64_t multiple_of_eight(double channels);

}  // namespace axle::nn
