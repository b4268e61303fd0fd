// Private to accel: the hooks that an Accelerator attaches to prepared objects.
#pragma once

#include <memory>
#include <utility>

#include "accel/loading/loader_hooks.h"
#include "accel/loop/loop_state.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// Hooks of prepared optimizers and schedulers. They skip step() and zero_grad() between two
// updates, divide and unscale gradients before a step, and advance schedules after an update.
class TrainingHooks : public optim::OptimizerHooks, public optim::SchedulerHooks {
  public:
    explicit TrainingHooks(std::shared_ptr<LoopState> loop) : loop_(std::move(loop)) {}

    optim::StepPlan before_step(optim::Optimizer& optimizer) override;
    bool allows_step(const optim::Optimizer&) const override {
        return loop_->accumulation.sync_gradients();
    }
    bool before_zero_grad(optim::Optimizer& optimizer) override;
    void before_access(optim::Optimizer& optimizer) override {
        loop_->recorder.catch_up(optimizer);
    }

    void step(optim::Scheduler& scheduler) override;
    void before_access(const optim::Scheduler& scheduler) override {
        loop_->recorder.catch_up(scheduler);
    }

  private:
    std::shared_ptr<LoopState> loop_;
};

// Hooks of prepared loaders, which make a loader the active loader while its loop runs.
class ActiveLoaderHooks : public PreparedLoaderHooks {
  public:
    ActiveLoaderHooks(std::shared_ptr<LoopState> loop, std::shared_ptr<dist::ProcessGroup> group,
                      PrepareDataLoaderOptions options)
        : PreparedLoaderHooks(std::move(group), std::move(options)), loop_(std::move(loop)) {}

    void begin(data::DataLoader& loader) override {
        loop_->accumulation.begin_pass(loader);
        PreparedLoaderHooks::begin(loader);
    }
    void end(data::DataLoader& loader) noexcept override { loop_->accumulation.end_pass(loader); }

  private:
    std::shared_ptr<LoopState> loop_;
};

}  // namespace axle::accel
