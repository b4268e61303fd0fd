// Normalization of channels: InstanceNorm1d, InstanceNorm2d, InstanceNorm3d and LocalResponseNorm.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/module.h"

namespace axle::nn {

struct InstanceNormOptions {
    double eps = 1e-5;
    // The weight of the latest batch in the running statistics. If unset, they do not change.
    std::optional<double> momentum = 0.1;
    bool affine = false;  // whether there are a weight, initially 1, and a bias, initially 0
    bool track_running_stats = false;  // whether evaluation mode uses running statistics
};

// Instance normalization (Ulyanov et al., arXiv:1607.08022): normalizes each channel of each sample
// over its spatial dimensions. x is [N, channels, ...] with kSpatial further dimensions, or
// [channels, ...] without N. With track_running_stats, training mode updates the running statistics
// with the mean of the statistics of all samples, and evaluation mode uses the running statistics.
template <int kSpatial>
class InstanceNorm : public Model<InstanceNorm<kSpatial>> {
  public:
    // Throws ValueError unless channels is positive.
    explicit InstanceNorm(std::int64_t channels, InstanceNormOptions options = {});
    // Returns a tensor of x's shape. Throws ShapeError if x has another number of dimensions or
    // channels, and if statistics of a single element would be computed in training mode.
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("weight", weight), v("bias", bias);
        v.buffer("running_mean", running_mean), v.buffer("running_var", running_var);
        v.buffer("num_batches_tracked", num_batches_tracked);
    }

    Tensor weight, bias;               // [channels] each, undefined without affine
    Tensor running_mean, running_var;  // [channels] each, undefined without track_running_stats
    // i64, []; undefined without track_running_stats. It stays 0, as in PyTorch.
    Tensor num_batches_tracked;
    double eps;
    std::optional<double> momentum;

  private:
    void update(const Tensor& x);

    std::int64_t channels_;
};
extern template class InstanceNorm<1>;
extern template class InstanceNorm<2>;
extern template class InstanceNorm<3>;
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

// Applies axle::local_response_norm.
class LocalResponseNorm : public Model<LocalResponseNorm> {
  public:
    // Throws ValueError unless size is positive.
    explicit LocalResponseNorm(std::int64_t size, LocalResponseNormOptions options = {});
    // Throws ShapeError if x has fewer than three dimensions.
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    std::int64_t size;
    LocalResponseNormOptions options;
};

}  // namespace axle::nn
