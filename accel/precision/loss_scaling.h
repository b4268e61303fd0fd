// Private to accel: scales losses in fp16 and decides when the scale is updated.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"

namespace axle::dist {
class DataParallel;
class ProcessGroup;
}  // namespace axle::dist

namespace axle::accel {

// A GradScaler for all prepared optimizers. The scale is updated once per iteration, from the
// gradients of all optimizers. Within the scope of accumulate(), the scale is updated when all
// optimizers have stepped, or at the end of the scope. Outside of this scope, the scale is updated
// when every optimizer that has gradients has stepped, so that no gradients with the previous scale
// remain. In both cases the scale is also updated when an optimizer steps again. All processes of a
// group skip the same steps. Used by one thread.
class LossScaling {
  public:
    // `group` is nullptr if there is one process. The object does not own it, because prepared
    // objects can outlive the Accelerator and must not keep this rank in the job. After the group
    // is destroyed, each process skips steps independently of the other processes. With a group,
    // all processes must call unscale() and before_step() together. Processes without data in the
    // scope of join_uneven_inputs() are exempt. If `has_stages` is true, processes have gradients
    // of different parameters, as in a pipeline. An optimizer then counts as having gradients if it
    // has any gradient on any process.
    LossScaling(const optim::GradScalerOptions& options, Device device,
                const std::shared_ptr<dist::ProcessGroup>& group = nullptr,
                bool has_stages = false);
    LossScaling(const LossScaling&) = delete;
    LossScaling& operator=(const LossScaling&) = delete;

    optim::GradScaler& scaler() { return scaler_; }
    void add(optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
    // Removes an optimizer. The optimizer may be destroyed already; only its address is used.
    void remove(const optim::Optimizer& optimizer);
    void clear() { optimizers_.clear(); }

    // Called at the start and the end of a scope of accumulate().
    void begin_iteration();
    void end_iteration();
    // Called before a backward pass, which computes new gradients. Optimizers that have stepped can
    // then be unscaled and step again.
    void before_backward();
    // Unscale the gradients of the optimizers that have any of the parameters, or of all
    // optimizers. Gradients that are already unscaled do not change.
    void unscale(const std::vector<Tensor>& parameters);
    void unscale_all();
    // Returns the scalars that the step applies, or an undefined tensor if the optimizer has no
    // gradients or the scaler is disabled.
    Tensor before_step(optim::Optimizer& optimizer);
    void before_zero_grad(const optim::Optimizer& optimizer) { scaler_.forget_progress(optimizer); }

    // Returns whether the last step of the optimizer was skipped. If the optimizer is not prepared,
    // returns whether the last step of any prepared optimizer was skipped. Reads device memory once
    // per step.
    bool was_skipped(const optim::Optimizer& optimizer);
    void forget_skips() { skips_.clear(); }

    // Called at the start and the end of a scope of join_uneven_inputs(). `replicas` is a model of
    // this scope. Within the scope, the ranks with data skip the same steps. At the end of the
    // scope, all ranks receive the scale and its step counter from the rank `last`, unless `last`
    // is nullopt.
    void begin_join(dist::DataParallel& replicas) { joined_ = &replicas; }
    void end_join(std::optional<int> last);

    // Returns text with the state of each optimizer (such as unscaled or stepped), to compare
    // positions within an iteration.
    std::string stages() const;

  private:
    bool is_complete() const;
    bool has_gradients(optim::Optimizer& optimizer) const;
    void unscale(optim::Optimizer& optimizer);
    void share_found_inf(const Tensor& found_inf);

    optim::GradScaler scaler_;
    std::vector<optim::Optimizer*> optimizers_;
    std::unordered_map<const optim::Optimizer*, bool> skips_;
    bool is_in_scope_ = false;
    std::weak_ptr<dist::ProcessGroup> group_;
    bool has_stages_ = false;
    dist::DataParallel* joined_ = nullptr;  // nullptr outside of join_uneven_inputs()
};

}  // namespace axle::accel
