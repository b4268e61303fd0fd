// Convolution layers with PyTorch's parameters, names and initial values.
#pragma once

#include <cstdint>

#include "core/ops.h"
#include "nn/module.h"

namespace axle::nn {

// The padding of an image: the number of pixels on each side in height and in width, or
// kSamePadding, which keeps the image size.
struct ConvPadding {
    struct Same {};

    Size2 size = 0;
    bool same = false;

    constexpr ConvPadding(std::int64_t both) : size(both) {}  // NOLINT: implicit as in Size2
    constexpr ConvPadding(std::int64_t h, std::int64_t w) : size(h, w) {}
    constexpr ConvPadding(Size2 both_sides) : size(both_sides) {}  // NOLINT
    constexpr ConvPadding(Same) : same(true) {}                    // NOLINT
};
inline constexpr ConvPadding::Same kSamePadding;

struct Conv2dLayerOptions {
    Size2 stride = 1;
    ConvPadding padding = 0;  // kSamePadding requires a stride of 1
    Size2 dilation = 1;
    std::int64_t groups = 1;
    bool bias = true;
    PadMode padding_mode = PadMode::constant;  // constant pads with zeros
};

class Conv2d : public Model<Conv2d> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(in /
    // groups * kernel area), as PyTorch does. Throws ValueError if a size or groups is not
    // positive, if in or out is not a multiple of groups, or if kSamePadding is combined with a
    // stride other than 1.
    Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, Conv2dLayerOptions options = {});

    // Maps images [N, in, H, W] or [in, H, W] to [N, out, H', W'] or [out, H', W']. Throws the
    // errors of pad() and conv2d() (core/functional.h).
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [out, in / groups, kernel h, kernel w]
    Tensor bias;    // [out], undefined if there is no bias

    const Conv2dLayerOptions& options() const { return options_; }

  private:
    Conv2dLayerOptions options_;
    // The padding that pad() adds before the convolution: left, right, top and bottom. Empty if the
    // convolution op pads the image.
    Dims around_;
    Conv2dOptions conv_;
};

// The options of conv_transpose2d() (core/functional.h), and whether there is a bias.
struct ConvTranspose2dLayerOptions {
    Size2 stride = 1;
    Size2 padding = 0;
    Size2 output_padding = 0;
    std::int64_t groups = 1;
    bool bias = true;
    Size2 dilation = 1;
};

class ConvTranspose2d : public Model<ConvTranspose2d> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(out /
    // groups * kernel area), as PyTorch does. Throws ValueError unless all sizes and groups are
    // positive, and in and out are multiples of groups.
    ConvTranspose2d(std::int64_t in, std::int64_t out, Size2 kernel,
                    ConvTranspose2dLayerOptions options = {});

    // Maps images [N, in, H, W] or [in, H, W] to [N, out, H', W'] or [out, H', W']. Throws the
    // errors of conv_transpose2d() (core/functional.h).
    Tensor forward(const Tensor& x);
    // Like forward(x), but chooses the output padding so that the result has the size output_size.
    // Throws ValueError unless each size is in [n, n + stride), where n is the size without output
    // padding, and the errors of forward(x).
    Tensor forward(const Tensor& x, Size2 output_size);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [in, out / groups, kernel h, kernel w]
    Tensor bias;    // [out], undefined if there is no bias

    const ConvTranspose2dLayerOptions& options() const { return options_; }

  private:
    ConvTranspose2dLayerOptions options_;
};

}  // namespace axle::nn
