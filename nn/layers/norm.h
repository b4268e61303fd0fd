// Normalization layers with PyTorch's names and defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/module.h"

namespace axle::nn {

struct LayerNormOptions {
    double eps = 1e-5;
    bool affine = true;  // whether there is a weight, initially 1
    bool bias = true;    // whether there is a bias, initially 0
};

// Layer normalization over the last dimension.
class LayerNorm : public Model<LayerNorm> {
  public:
    explicit LayerNorm(std::int64_t width, LayerNormOptions options = {});
    Tensor forward(const Tensor& x) { return layer_norm(x, weight, bias, eps); }
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight, bias;
    double eps;
};

// Root mean square normalization over the last dimension.
class RMSNorm : public Model<RMSNorm> {
  public:
    explicit RMSNorm(std::int64_t width, double eps = 1e-6);
    Tensor forward(const Tensor& x) { return rms_norm(x, weight, eps); }
    void visit(Visitor& v) override { v("weight", weight); }

    Tensor weight;
    double eps;
};

struct BatchNormOptions {
    double eps = 1e-5;
    // The weight of the latest batch in the running statistics. If unset, the running statistics
    // are the average of all batches; on a GPU, this waits for the batch count in every step.
    std::optional<double> momentum = 0.1;
    bool affine = true;  // has a weight (1) and a bias (0)
    bool track_running_stats =
        true;  // if false, uses the statistics of the batch in evaluation too
};

// Replaces the normalization with batch statistics, for example to compute the statistics over all
// processes. normalize() has the parameters of batch_norm(). A clone shares its policy with the
// original module.
struct BatchNormPolicy {
    virtual ~BatchNormPolicy() = default;
    virtual Tensor normalize(const Tensor& x, Tensor running_mean, Tensor running_var,
                             const Tensor& weight, const Tensor& bias, double momentum,
                             double eps) = 0;
};

// Batch normalization over all dimensions except the second. Training mode uses the statistics of
// the batch and updates the running statistics; evaluation mode uses the running statistics. x is
// [N, C, ...] with kSpatial further dimensions; for kSpatial = 1, x can also be [N, C].
template <int kSpatial>
class BatchNorm : public Model<BatchNorm<kSpatial>> {
  public:
    explicit BatchNorm(std::int64_t channels, BatchNormOptions options = {});
    // Throws ShapeError if the number of dimensions or channels is wrong.
    Tensor forward(const Tensor& x);
    void visit(Visitor& v) override {
        v("weight", weight), v("bias", bias);
        v.buffer("running_mean", running_mean), v.buffer("running_var", running_var);
        v.buffer("num_batches_tracked", num_batches_tracked);
    }

    Tensor weight, bias;
    Tensor running_mean, running_var;
    Tensor num_batches_tracked;  // i64, []
    double eps;
    std::optional<double> momentum;
    std::shared_ptr<BatchNormPolicy> policy;  // used in training only
};
extern template class BatchNorm<1>;
extern template class BatchNorm<2>;
extern template class BatchNorm<3>;
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;

struct GroupNormOptions {
    double eps = 1e-5;
    bool affine = true;  // has a weight (1) and a bias (0) per channel
};

// Group normalization: splits the channels (dimension 1) into `groups` equal parts and normalizes
// each of them over its channels and all following dimensions.
class GroupNorm : public Model<GroupNorm> {
  public:
    // Throws ValueError unless channels is a multiple of groups.
    GroupNorm(std::int64_t groups, std::int64_t channels, GroupNormOptions options = {});
    Tensor forward(const Tensor& x) { return group_norm(x, groups, weight, bias, eps); }
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    std::int64_t groups;
    Tensor weight, bias;
    double eps;
};

}  // namespace axle::nn
