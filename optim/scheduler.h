// Learning rate schedules: the base, and the one that takes functions. The others are in
// optim/schedules.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/tree.h"
#include "optim/optimizer.h"

namespace axle::inline v0::optim {

class Scheduler;

// Stands in for Scheduler::step(): decides whether, and how often, to call advance().
struct SchedulerGate {
    virtual ~SchedulerGate() = default;
    virtual void step(Scheduler& scheduler) = 0;
    // Before the schedule is read or changed from outside: the moment to bring it up to date, where
    // captured steps have gone ahead of it.
    virtual void before_access(const Scheduler&) {}
};

// As torch.optim.lr_scheduler.LRScheduler: construction sets the learning rates of epoch 0, and
// each step() those of the next. An epoch is whatever the caller counts, mostly optimizer steps.
// Rates are functions of the epoch and of the rate that a group had before its first scheduler.
// Refers to its optimizer, which must outlive it.
class Scheduler {
  public:
    explicit Scheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
    virtual ~Scheduler() = default;
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // advance(), or what the gate makes of it.
    void step();
    // One step of the schedule.
    void advance();

    // The rates that the last step set, one per group.
    const std::vector<double>& get_last_lr() const {
        before_access();
        return last_lr_;
    }
    std::int64_t last_epoch() const {
        before_access();
        return last_epoch_;
    }
    // Steps so far, the one of construction included.
    std::int64_t step_count() const {
        before_access();
        return step_count_;
    }
    // Where a schedule ends and further steps are refused.
    virtual std::optional<std::int64_t> total_steps() const { return std::nullopt; }
    // Whether rates may be worked out for steps that are yet to come: not where they depend on more
    // than the epoch, such as a loss, or where working them out shows.
    virtual bool can_look_ahead() const { return true; }
    Optimizer& optimizer() { return optimizer_; }

    // PyTorch's names: last_epoch, _step_count, _last_lr, base_lrs.
    Tree state_dict() const;
    // Leaves the optimizer's rates alone: they come back with its own state.
    void load_state_dict(const Tree& tree);

    // Null takes it away.
    void set_gate(std::shared_ptr<SchedulerGate> gate) { gate_ = std::move(gate); }

  protected:
    // Every constructor of a schedule ends with it.
    void start() { advance(); }
    // Sets a group's rate (and momentum, for schedules that cycle it) for an epoch. `base_lr` is
    // the group's initial rate.
    virtual void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) = 0;

  private:
    void before_access() const {
        if (gate_) gate_->before_access(*this);
    }

    Optimizer& optimizer_;
    std::shared_ptr<SchedulerGate> gate_;
    std::int64_t last_epoch_ = -1;
    std::int64_t step_count_ = 0;
    std::vector<double> base_lrs_, last_lr_;
};

// lr = initial lr * factor(epoch).
class LambdaLR : public Scheduler {
  public:
    using Factor = std::function<double(std::int64_t epoch)>;

    LambdaLR(Optimizer& optimizer, const Factor& factor);
    // One per group (ValueError).
    LambdaLR(Optimizer& optimizer, std::vector<Factor> factors);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;

  private:
    std::vector<Factor> factors_;
};

}  // namespace axle::inline v0::optim
