// Normalization layers with PyTorch's names and defaults, and their extension points.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "nn/module.h"

namespace axle::nn {

struct LayerNormOptions {
    double eps = 1e-5;
    bool affine = true;  // whether there is a weight, initially 1
    bool bias = true;    // whether there is a bias, initially 0; ignored if affine is false
};

// Replaces the parameters of a LayerNorm or RMSNorm in calls, for example to change how their
// gradients are computed. A clone of a norm shares the policy with the original module.
struct NormPolicy {
    virtual ~NormPolicy() = default;
    // Returns the weight and the bias to use; each is undefined if the norm does not have it.
    virtual std::pair<Tensor, Tensor> parameters(const Tensor& weight, const Tensor& bias) = 0;
};

// Layer normalization over the last dimension, or over several last dimensions.
class LayerNorm : public Model<LayerNorm> {
  public:
    // Throws ValueError unless width, the size of the last dimension, is positive.
    explicit LayerNorm(std::int64_t width, LayerNormOptions options = {});
    // Normalizes over the last dimensions, which have the given sizes: LayerNorm({4, 8}) for x
    // [..., 4, 8]. Throws ValueError unless there is at least one size and all sizes are positive.
    explicit LayerNorm(const Shape& sizes, LayerNormOptions options = {});
    // Returns a tensor of x's shape. Throws ShapeError if the last dimensions of x have other
    // sizes.
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    const Shape& normalized_shape() const { return sizes_; }

    Tensor weight, bias;  // with the normalized sizes as shape; undefined if there is none
    double eps;
    std::shared_ptr<NormPolicy> policy;  // null by default

  private:
    Shape sizes_;
};

// Root mean square normalization over the last dimension, with a weight, initially 1.
class RMSNorm : public Model<RMSNorm> {
  public:
    // Throws ValueError unless width, the size of the last dimension, is positive. Without eps,
    // forward() uses the default of axle::rms_norm.
    explicit RMSNorm(std::int64_t width, std::optional<double> eps = {});
    // Returns a tensor of x's shape. Throws ShapeError unless the last dimension of x is `width`.
    Tensor forward(const Tensor& x) {
        return rms_norm(x, policy ? policy->parameters(weight, {}).first : weight, eps);
    }
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;  // [width]
    std::optional<double> eps;
    std::shared_ptr<NormPolicy> policy;  // null by default
};

struct BatchNormOptions {
    double eps = 1e-5;
    // The weight of the latest batch in the running statistics. If unset, the running statistics
    // are the average of all batches; each training step then waits for the GPU.
    std::optional<double> momentum = 0.1;
    bool affine = true;  // whether there are a weight, initially 1, and a bias, initially 0
    bool track_running_stats = true;  // whether evaluation mode uses running statistics
};

// Replaces batch_norm() in training mode, for example to compute the batch statistics over all
// processes. A clone of a BatchNorm shares the policy with the original module.
struct BatchNormPolicy {
    virtual ~BatchNormPolicy() = default;
    // Returns x normalized with batch statistics, and updates the running statistics if they are
    // defined. batch_norm() (core/functional.h) describes the parameters and the result.
    virtual Tensor normalize(const Tensor& x, Tensor running_mean, Tensor running_var,
                             const Tensor& weight, const Tensor& bias, double momentum,
                             double eps) = 0;
};

// Batch normalization over all dimensions except the second. Training mode uses the statistics of
// the batch and updates the running statistics; evaluation mode uses the running statistics.
// Without track_running_stats, both modes use the statistics of the batch. x is [N, channels, ...]
// with kSpatial further dimensions; for kSpatial = 1, x can also be [N, channels].
template <int kSpatial>
class BatchNorm : public Model<BatchNorm<kSpatial>> {
  public:
    // Throws ValueError unless channels is positive.
    explicit BatchNorm(std::int64_t channels, BatchNormOptions options = {});
    // Returns a tensor of x's shape. Throws ShapeError if x has another number of dimensions, if
    // its number of channels differs from the size of a parameter or buffer, and if batch
    // statistics would be computed from a single value per channel. As in PyTorch, a layer without
    // parameters and buffers accepts every number of channels.
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("weight", weight), v("bias", bias);
        v.buffer("running_mean", running_mean), v.buffer("running_var", running_var);
        v.buffer("num_batches_tracked", num_batches_tracked);
    }

    Tensor weight, bias;               // [channels] each, undefined without affine
    Tensor running_mean, running_var;  // [channels] each, undefined without track_running_stats
    Tensor num_batches_tracked;        // i64, []; undefined without track_running_stats
    double eps;
    std::optional<double> momentum;
    std::shared_ptr<BatchNormPolicy> policy;  // used in training mode only; null by default
};
extern template class BatchNorm<1>;
extern template class BatchNorm<2>;
extern template class BatchNorm<3>;
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;

struct GroupNormOptions {
    double eps = 1e-5;
    bool affine = true;  // whether each channel has a weight, initially 1, and a bias, initially 0
};

// Group normalization: splits the channels (dimension 1) into `groups` equal parts and normalizes
// each part over its channels and all following dimensions.
class GroupNorm : public Model<GroupNorm> {
  public:
    // Throws ValueError unless both numbers are positive and channels is a multiple of groups.
    GroupNorm(std::int64_t groups, std::int64_t channels, GroupNormOptions options = {});
    // Returns a tensor of the shape of x [N, channels, ...]. Throws ShapeError if x has another
    // number of channels; without affine, only if the number of channels is not a multiple of
    // groups, as in PyTorch.
    Tensor forward(const Tensor& x) { return group_norm(x, groups, weight, bias, eps); }
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    std::int64_t groups;
    Tensor weight, bias;  // [channels] each, undefined without affine
    double eps;
};

}  // namespace axle::nn
