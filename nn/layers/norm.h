// Normalisation layers, with PyTorch's names and defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/module.h"

namespace axle::inline v0::nn {

struct LayerNormOptions {
    double eps = 1e-5;
    bool affine = true;  // weight of ones
    bool bias = true;    // and bias of zeros
};

// Over the last dimension.
class LayerNorm : public Model<LayerNorm> {
  public:
    explicit LayerNorm(std::int64_t width, LayerNormOptions options = {});
    Tensor forward(const Tensor& x) { return layer_norm(x, weight, bias, eps); }
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    Tensor weight, bias;
    double eps;
};

// Over the last dimension.
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
    // The weight of the newest batch in the running statistics; without one they are the plain
    // average over all batches (which reads the count of batches on the host).
    std::optional<double> momentum = 0.1;
    bool affine = true;               // weight of ones and bias of zeros
    bool track_running_stats = true;  // else each batch is normalised by its own, always
};

// Takes over the normalising of a BatchNorm by a batch's statistics: those of all processes. The
// arguments are batch_norm's. Clones share it.
struct BatchNormPolicy {
    virtual ~BatchNormPolicy() = default;
    virtual Tensor normalise(const Tensor& x, Tensor running_mean, Tensor running_var,
                             const Tensor& weight, const Tensor& bias, double momentum,
                             double eps) = 0;
};

// Over all dimensions but the second: by the batch's statistics in training, which also moves the
// running ones, and by the running ones in evaluation. x has kSpatial dimensions behind [N, C]; in
// one dimension x may be [N, C] itself.
template <int kSpatial>
class BatchNorm : public Model<BatchNorm<kSpatial>> {
  public:
    explicit BatchNorm(std::int64_t channels, BatchNormOptions options = {});
    // Throws ShapeError for another rank or number of channels.
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
    std::shared_ptr<BatchNormPolicy> policy;  // in training
};
extern template class BatchNorm<1>;
extern template class BatchNorm<2>;
extern template class BatchNorm<3>;
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;

struct GroupNormOptions {
    double eps = 1e-5;
    bool affine = true;  // weight of ones and bias of zeros, one per channel
};

// Over each of `groups` equal parts of the channels, dimension 1, with all that lies behind them.
class GroupNorm : public Model<GroupNorm> {
  public:
    // Throws ValueError where groups doesn't divide channels.
    GroupNorm(std::int64_t groups, std::int64_t channels, GroupNormOptions options = {});
    Tensor forward(const Tensor& x) { return group_norm(x, groups, weight, bias, eps); }
    void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }

    std::int64_t groups;
    Tensor weight, bias;
    double eps;
};

}  // namespace axle::inline v0::nn
