// Dropout of whole channels, and dropout that keeps mean and variance.
#pragma once

#include <cstdint>

#include "nn/module.h"

namespace axle::nn {

// Dropout of channels: in training mode, sets each channel of each sample to zero with probability
// p and multiplies the other channels by 1 / (1 - p). In evaluation mode, returns the input. x is
// [N, C, ...] with kSpatial further dimensions, or [C, ...] without N, except that Dropout2d treats
// three dimensions as [N, C, L], as in PyTorch.
template <int kSpatial>
class ChannelDropout : public Model<ChannelDropout<kSpatial>> {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit ChannelDropout(double p = 0.5);
    // Throws ShapeError if x has another number of dimensions.
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    double p;
};
extern template class ChannelDropout<1>;
extern template class ChannelDropout<2>;
extern template class ChannelDropout<3>;
using Dropout1d = ChannelDropout<1>;
using Dropout2d = ChannelDropout<2>;
using Dropout3d = ChannelDropout<3>;

// Alpha dropout for SELU networks (Klambauer et al., arXiv:1706.02515): in training mode, sets each
// element with probability p to the lower limit of SELU. An affine function then preserves a mean
// of 0 and a variance of 1. With p = 1, the result is zero. In evaluation mode, returns the input.
class AlphaDropout : public Model<AlphaDropout> {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit AlphaDropout(double p = 0.5);
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    double p;
};

// Alpha dropout of whole channels of x [N, C, ...].
class FeatureAlphaDropout : public Model<FeatureAlphaDropout> {
  public:
    // Throws ValueError unless p is in [0, 1].
    explicit FeatureAlphaDropout(double p = 0.5);
    // Throws ShapeError if x has fewer than two dimensions.
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    double p;
};

}  // namespace axle::nn
