// AveragedModel: a copy of a model whose weights are averages over the steps of training, like
// torch.optim.swa_utils.AveragedModel. update_bn() recomputes the statistics of the BatchNorms of a
// model.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/autograd/autograd.h"
#include "nn/module.h"

namespace axle::nn {

struct AverageOptions {
    // If set, the average is an exponential moving average: average = decay * average + (1 - decay)
    // * weight. Otherwise, it is the mean of the weights of all updates (stochastic weight
    // averaging, arXiv:1803.05407).
    std::optional<double> decay = std::nullopt;
    // Whether floating buffers are averaged like parameters. Otherwise, they are copied from the
    // model, as buffers of other dtypes always are.
    bool use_buffers = false;
};

// Throws ValueError unless the decay is in [0, 1].
void check_average(const AverageOptions& options);

// Updates the average of `updates` earlier models; the first update copies the model. Throws
// ShapeError, before it changes the average, unless both models have parameters and buffers of the
// same names and shapes in the same order. `average` and `model` can be on different devices.
void update_average(Module& average, const Module& model, std::int64_t updates,
                    const AverageOptions& options);

// A copy of a model with averaged weights:
//     nn::AveragedModel ema(model, {.decay = 0.999});
//     for (...) { ...; optimizer.step(); ema.update_parameters(model); }
//     const Tensor y = ema(x);
//
// The average has the device, the dtypes and the mode (training or evaluation) of the model when it
// was created. Its parameters are not trained.
template <std::derived_from<Module> M>
class AveragedModel : public Model<AveragedModel<M>> {
  public:
    // Clones the model. Throws ValueError unless the decay is in [0, 1], and UsageError if the
    // model cannot be cloned (Model::clone()).
    explicit AveragedModel(const M& model, AverageOptions options_ = {})
        : module(model.clone()), options(options_) {
        check_average(options);
        for (const Tensor& parameter : module.parameters())
            Tensor(parameter).set_requires_grad(false);
    }

    // Adds the weights of `model` to the average. Throws ShapeError and changes nothing unless
    // `model` has tensors of the same names and shapes as the average, in the same order.
    void update_parameters(const M& model) {
        update_average(module, model, updates(), options);
        n_averaged.add_(1);
    }
    // Returns the number of calls of update_parameters().
    std::int64_t updates() const { return static_cast<std::int64_t>(n_averaged.item()); }

    template <class... Args>
    auto forward(Args&&... args) {
        return module(std::forward<Args>(args)...);
    }
    void visit(Visitor& v) override {
        v("module", module);
        v.buffer("n_averaged", n_averaged);
    }

    M module;
    Tensor n_averaged = zeros({}, {.dtype = i64});
    AverageOptions options;
};

// The state of update_bn(). The constructor resets the running statistics of all BatchNorms that
// have them, unsets the momenta of these BatchNorms, so that they average all batches, and switches
// the model to training mode. The destructor restores the momenta and sets all modules to the mode
// that `model` itself had.
class BatchNormUpdate {
  public:
    explicit BatchNormUpdate(Module& model);
    ~BatchNormUpdate();
    BatchNormUpdate(const BatchNormUpdate&) = delete;
    BatchNormUpdate& operator=(const BatchNormUpdate&) = delete;

    // Returns whether the model has a BatchNorm with running statistics.
    bool needed() const;

  private:
    struct Private;
    OwningPtr<Private> private_;
};

// Recomputes the running statistics of all BatchNorms in the model as means over the batches. For
// each batch, calls f(batch), which must call the model. f runs in training mode and without
// recording gradients. Does not call f if the model has no BatchNorm with running statistics. At
// the end, all modules have the mode (training or evaluation) that `model` itself had.
template <class Batches, class F>
void update_bn(Module& model, Batches&& batches, F&& f) {
    const NoGrad no_grad;
    const BatchNormUpdate update(model);
    if (!update.needed()) return;
    for (auto&& batch : batches) f(batch);
}

}  // namespace axle::nn
