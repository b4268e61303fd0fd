// Private to accel: the hooks that an Accelerator attaches to prepared objects.
#pragma once

#include <memory>
#include <utility>

#include "accel/loading/loader_hooks.h"
#include "accel/loop/loop_state.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

class Preparation;

// Hooks of prepared models, optimizers and schedulers. They skip step() and zero_grad() between two
// updates (step() of schedulers only with step_scheduler_with_optimizer) and after a train step
// that has updated the parameters. They divide and unscale gradients before a step, and advance
// schedules after an update. They also remove destroyed objects from the Preparation, and replace
// the addresses of moved objects.
class TrainingHooks : public optim::OptimizerHooks,
                      public optim::SchedulerHooks,
                      public nn::ModuleObserver {
  public:
    TrainingHooks(std::shared_ptr<LoopState> loop, Preparation& owner)
        : loop_(std::move(loop)), owner_(&owner) {}

    // Removes the reference to the Preparation. Called when the Preparation is destroyed or
    // cleared.
    void drop_owner() { owner_ = nullptr; }
    Preparation* owner() const { return owner_; }

    optim::StepPlan before_step(optim::Optimizer& optimizer) override;
    bool allows_step(const optim::Optimizer&) const override {
        return loop_->accumulation.sync_gradients() && !loop_->has_updated;
    }
    bool before_zero_grad(optim::Optimizer& optimizer) override;
    void before_access(optim::Optimizer& optimizer) override {
        loop_->recorder.catch_up(optimizer);
    }

    void step(optim::Scheduler& scheduler) override;
    void before_access(const optim::Scheduler& scheduler) override {
        loop_->recorder.catch_up(scheduler);
    }

    void detached(const optim::Optimizer& optimizer) noexcept override;
    void detached(const optim::Scheduler& scheduler) noexcept override;
    void detached(const nn::Module& model) noexcept override;
    void moved(const nn::Module& from, nn::Module& to) noexcept override;

  private:
    std::shared_ptr<LoopState> loop_;
    Preparation* owner_;  // nullptr after drop_owner()
};

// Hooks of prepared loaders. They make a loader the active loader while its loop runs.
class ActiveLoaderHooks : public PreparedLoaderHooks {
  public:
    ActiveLoaderHooks(std::shared_ptr<LoopState> loop, std::shared_ptr<TrainingHooks> training,
                      std::shared_ptr<dist::ProcessGroup> group, PrepareDataLoaderOptions options)
        : PreparedLoaderHooks(std::move(group), std::move(options)),
          loop_(std::move(loop)),
          training_(std::move(training)) {}

    void begin(data::DataLoader& loader) override {
        loop_->accumulation.begin_pass(loader);
        PreparedLoaderHooks::begin(loader);
    }
    void end(data::DataLoader& loader) noexcept override { loop_->accumulation.end_pass(loader); }
    void detached(const data::DataLoader& loader) noexcept override;
    void moved(const data::DataLoader& from, data::DataLoader& to) noexcept override;

  private:
    std::shared_ptr<LoopState> loop_;
    std::shared_ptr<TrainingHooks> training_;
};

}  // namespace axle::accel
