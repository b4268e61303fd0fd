// Convolution layers for signals and volumes, with PyTorch's parameters, names and initial values.
// The layers for images are in nn/layers/conv.h.
#pragma once

#include <cstdint>

#include "core/ops.h"
#include "core/spatial.h"
#include "nn/layers/conv.h"
#include "nn/module.h"

namespace axle::nn {

// The padding of a signal or of a volume: the number of elements on each side, or kSamePadding,
// which keeps the size.
struct ConvPadding1d {
    std::int64_t size = 0;
    bool same = false;

    constexpr ConvPadding1d(std::int64_t both_sides) : size(both_sides) {}  // NOLINT: as int64
    constexpr ConvPadding1d(ConvPadding::Same) : same(true) {}              // NOLINT
};
struct ConvPadding3d {
    Size3 size = 0;
    bool same = false;

    constexpr ConvPadding3d(std::int64_t all) : size(all) {}  // NOLINT: implicit as in Size3
    constexpr ConvPadding3d(std::int64_t d, std::int64_t h, std::int64_t w) : size(d, h, w) {}
    constexpr ConvPadding3d(Size3 both_sides) : size(both_sides) {}  // NOLINT
    constexpr ConvPadding3d(ConvPadding::Same) : same(true) {}       // NOLINT
};

struct Conv1dLayerOptions {
    std::int64_t stride = 1;
    ConvPadding1d padding = 0;  // kSamePadding requires a stride of 1
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
    bool bias = true;
    PadMode padding_mode = PadMode::constant;  // constant pads with zeros
};

class Conv1d : public Model<Conv1d> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(in /
    // groups * kernel), as PyTorch does. Throws ValueError if a size or groups is not positive, if
    // in or out is not a multiple of groups, or if kSamePadding is combined with a stride other
    // than 1.
    Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, Conv1dLayerOptions options = {});

    // Maps signals [N, in, L] or [in, L] to [N, out, L'] or [out, L']. Throws the errors of pad()
    // and conv1d().
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [out, in / groups, kernel]
    Tensor bias;    // [out], undefined if there is no bias

    const Conv1dLayerOptions& options() const { return options_; }

  private:
    Conv1dLayerOptions options_;
    // The argument of pad() before the convolution. Empty if the convolution op pads the signal.
    Dims around_;
    Conv1dOptions conv_;
};

struct Conv3dLayerOptions {
    Size3 stride = 1;
    ConvPadding3d padding = 0;  // kSamePadding requires a stride of 1
    Size3 dilation = 1;
    std::int64_t groups = 1;
    bool bias = true;
    PadMode padding_mode = PadMode::constant;  // constant pads with zeros
};

class Conv3d : public Model<Conv3d> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(in /
    // groups * kernel volume), as PyTorch does. Throws the errors of Conv1d.
    Conv3d(std::int64_t in, std::int64_t out, Size3 kernel, Conv3dLayerOptions options = {});

    // Maps volumes [N, in, D, H, W] or [in, D, H, W] to [N, out, D', H', W'] or [out, D', H', W'].
    // Throws the errors of pad() and conv3d().
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [out, in / groups, kernel d, kernel h, kernel w]
    Tensor bias;    // [out], undefined if there is no bias

    const Conv3dLayerOptions& options() const { return options_; }

  private:
    Conv3dLayerOptions options_;
    Dims around_;  // as in Conv1d
    Conv3dOptions conv_;
};

// The options of conv_transpose1d() (core/spatial.h), and whether there is a bias.
struct ConvTranspose1dLayerOptions {
    std::int64_t stride = 1;
    std::int64_t padding = 0;
    std::int64_t output_padding = 0;
    std::int64_t groups = 1;
    bool bias = true;
    std::int64_t dilation = 1;
};

class ConvTranspose1d : public Model<ConvTranspose1d> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(out /
    // groups * kernel), as PyTorch does. Throws ValueError unless all sizes and groups are
    // positive, and in and out are multiples of groups.
    ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                    ConvTranspose1dLayerOptions options = {});

    // Maps signals [N, in, L] or [in, L] to [N, out, L'] or [out, L']. Throws the errors of
    // conv_transpose1d().
    Tensor forward(const Tensor& x);
    // Like forward(x), but chooses the output padding so that the result has the size output_size.
    // Throws ValueError unless output_size is in [n, n + stride), where n is the size without
    // output padding, and the errors of forward(x).
    Tensor forward(const Tensor& x, std::int64_t output_size);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [in, out / groups, kernel]
    Tensor bias;    // [out], undefined if there is no bias

    const ConvTranspose1dLayerOptions& options() const { return options_; }

  private:
    ConvTranspose1dLayerOptions options_;
};

// The options of conv_transpose3d() (core/spatial.h), and whether there is a bias.
struct ConvTranspose3dLayerOptions {
    Size3 stride = 1;
    Size3 padding = 0;
    Size3 output_padding = 0;
    std::int64_t groups = 1;
    bool bias = true;
    Size3 dilation = 1;
};

class ConvTranspose3d : public Model<ConvTranspose3d> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(out /
    // groups * kernel volume), as PyTorch does. Throws the errors of ConvTranspose1d.
    ConvTranspose3d(std::int64_t in, std::int64_t out, Size3 kernel,
                    ConvTranspose3dLayerOptions options = {});

    // Maps volumes [N, in, D, H, W] or [in, D, H, W] to [N, out, D', H', W'] or [out, D', H', W'].
    // Throws the errors of conv_transpose3d().
    Tensor forward(const Tensor& x);
    // Like forward(x), but chooses the output padding so that the result has the size output_size.
    // Throws ValueError unless each size is in [n, n + stride), where n is the size without output
    // padding, and the errors of forward(x).
    Tensor forward(const Tensor& x, Size3 output_size);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight;  // [in, out / groups, kernel d, kernel h, kernel w]
    Tensor bias;    // [out], undefined if there is no bias

    const ConvTranspose3dLayerOptions& options() const { return options_; }

  private:
    ConvTranspose3dLayerOptions options_;
};

}  // namespace axle::nn
