// DistributedModel: the common interface of objects that train one model on several processes, such
// as DataParallel and ShardedDataParallel.
#pragma once

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "nn/module.h"

namespace axle::dist {

class DistributedModel {
  public:
    virtual ~DistributedModel() = default;
    DistributedModel(const DistributedModel&) = delete;
    DistributedModel& operator=(const DistributedModel&) = delete;

    // Sets whether later backward passes compute the mean of the gradients of all ranks. If false,
    // they accumulate gradients.
    virtual void set_sync(bool reduce) = 0;
    virtual bool syncs() const = 0;
    // Returns whether the next backward pass computes the mean of the gradients of all ranks.
    virtual bool reduces() const { return syncs(); }
    // Returns the sum of an f64 scalar over all ranks. All ranks must call this function.
    virtual Tensor sum(const Tensor& number) = 0;
    // Prepares a forward. Must be called before each forward; hooks that Accelerator::prepare()
    // attaches call it.
    virtual void before_forward() {}
    // Replaces the model. Must be called after the model was moved; `moved` is the new object.
    virtual void set_model(nn::Module& moved) = 0;

    // Returns the state that a checkpoint of this rank needs in addition to the model and its
    // optimizers.
    virtual Tree state_dict() const { return Tree::map(); }
    // Loads a state. If the number of ranks has changed, is_own must be false, and all ranks must
    // load the state of rank 0. Returns false if a part of the state was reset instead.
    virtual bool load_state_dict(const Tree&, bool /*is_own*/ = true) { return true; }

  protected:
    DistributedModel() = default;
};

// A scope with set_sync(false), in which backward accumulates gradients. The first backward after
// the scope computes the mean of the accumulated gradients of all ranks.
class [[nodiscard]] NoSyncGuard {
  public:
    explicit NoSyncGuard(DistributedModel& model) : model_(&model), before_(model.syncs()) {
        model.set_sync(false);
    }
    ~NoSyncGuard() { model_->set_sync(before_); }
    NoSyncGuard(const NoSyncGuard&) = delete;
    NoSyncGuard& operator=(const NoSyncGuard&) = delete;

  private:
    DistributedModel* model_;
    bool before_;
};

}  // namespace axle::dist
