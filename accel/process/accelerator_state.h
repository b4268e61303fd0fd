// Private to accel: what an Accelerator shares with the gates of what it has prepared.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/loading/loader_gate.h"
#include "accel/loop/compile.h"
#include "accel/loop/device_rates.h"
#include "accel/loop/gradient_division.h"
#include "accel/precision/loss_scaling.h"
#include "accel/precision/resolve_fp8.h"

namespace axle::inline v0::accel {

// What decides whether a micro-batch completes an update.
struct Accelerator::State {
    bool sync_gradients = true;
    std::int64_t step = 0;    // micro-batches since the last update
    std::int64_t opened = 0;  // micro-batches ever
    std::int64_t window = 0;  // micro-batches of this update so far; 0 without accumulate()
    // Of the latest micro-batch: the loop that it is of, and whether its batch is the last.
    data::DataLoader* loader = nullptr;
    bool is_last_batch = false;
    int num_steps = 1;
    bool adjust_scheduler = false;
    ShortWindow short_window = ShortWindow::as_upstream;
    bool sync_with_dataloader = true;
    bool sync_each_batch = false;
    bool step_scheduler_with_optimizer = true;
    int scheduler_steps = 1;                // with each update
    std::vector<data::DataLoader*> active;  // loaders whose loops run, the innermost last
    StepRecord* record = nullptr;           // of the step that is being captured
    int preparations = 0;                   // changes of what is prepared
    std::unique_ptr<LossScaling> scaling;   // in f16
    std::unique_ptr<Fp8Plan> fp8;           // in fp8
    std::vector<std::unique_ptr<DeviceRates>> rates;
    GradientDivision division;

    bool end_of_dataloader() const { return !active.empty() && active.back()->end_of_dataloader(); }
    // As a micro-batch opens.
    void count_micro_batch();
    // Whether one that opened now would complete an update whatever the count.
    bool ends_pass() const;
    // What the latest micro-batches have left will be dropped at the end of the pass.
    bool is_to_drop() const;
    void end_pass(const data::DataLoader& of);
    DeviceRates* rates_of(const optim::Optimizer& optimizer) const;
    // A scheduler's step that is due, as it is taken where nothing was skipped, and as it is.
    void take_step(optim::Scheduler& scheduler) const;
    void step_schedule(optim::Scheduler& scheduler) const;
};

// What prepared objects ask. They own it, so that they may outlive the Accelerator.
class Accelerator::Gate : public optim::OptimizerHooks, public optim::SchedulerHooks {
  public:
    explicit Gate(std::shared_ptr<State> state) : state_(std::move(state)) {}

    optim::StepPlan before_step(optim::Optimizer& optimizer) override;
    bool allows_step(const optim::Optimizer&) const override { return state_->sync_gradients; }
    bool before_zero_grad(optim::Optimizer& optimizer) override;
    void before_access(optim::Optimizer& optimizer) override;

    void step(optim::Scheduler& scheduler) override;
    void before_access(const optim::Scheduler& scheduler) override;

  private:
    std::shared_ptr<State> state_;
};

// Of a loader: it is the innermost one while its loop runs.
class Accelerator::ActiveGate : public PreparedLoaderHooks {
  public:
    ActiveGate(std::shared_ptr<State> state, std::shared_ptr<dist::ProcessGroup> group,
               PrepareDataLoaderOptions options)
        : PreparedLoaderHooks(std::move(group), std::move(options)), state_(std::move(state)) {}

    void begin(data::DataLoader& loader) override {
        state_->active.push_back(&loader);
        PreparedLoaderHooks::begin(loader);
    }
    void end(data::DataLoader& loader) noexcept override {
        std::erase(state_->active, &loader);
        state_->end_pass(loader);
    }

  private:
    std::shared_ptr<State> state_;
};

}  // namespace axle::inline v0::accel
