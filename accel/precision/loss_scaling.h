// Private to accel: a GradScaler that is asked by the gates of prepared objects.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"

namespace axle::accel {

// The scale is updated once per iteration, by what all optimizers have found. Within accumulate(),
// an iteration is its scope: the update comes when all optimizers have stepped, or at its end.
// Elsewhere it comes as soon as each of them that has gradients has stepped, so that no gradient
// waits that was scaled otherwise. Always where an optimizer steps for the second time.
class LossScaling {
  public:
    LossScaling(const optim::GradScalerOptions& options, Device device);

    optim::GradScaler& scaler() { return scaler_; }
    void add(optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
    void clear() { optimizers_.clear(); }

    void begin_iteration();
    void end_iteration();
    void before_backward();
    // Optimizers that hold any of the parameters, or all; those that are unscaled stay so.
    void unscale(const std::vector<Tensor>& parameters);
    void unscale_all();
    // Returns the scalars of the step, undefined if the optimizer has no gradients.
    Tensor before_step(optim::Optimizer& optimizer);
    void before_zero_grad(const optim::Optimizer& optimizer) { scaler_.forget_progress(optimizer); }

    // Of the last step of a prepared optimizer, else of any. Read once per step.
    bool was_skipped(const optim::Optimizer& optimizer);
    void forget_skips() { skips_.clear(); }
    // What a step begins with, as text.
    std::string stages() const;

  private:
    bool is_complete() const;
    void unscale(optim::Optimizer& optimizer);

    optim::GradScaler scaler_;
    std::vector<optim::Optimizer*> optimizers_;
    std::unordered_map<const optim::Optimizer*, bool> skips_;
    bool is_in_scope_ = false;
};

}  // namespace axle::accel
