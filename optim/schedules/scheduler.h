// Learning rate schedules: the base class and LambdaLR. All other schedules are in
// optim/schedules/schedules.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/tree/tree.h"
#include "optim/optimizer.h"

namespace axle::optim {

class Scheduler;

// Stands in for Scheduler::step(): decides whether, and how often, to call advance().
struct SchedulerHooks {
    virtual ~SchedulerHooks() = default;
    virtual void step(Scheduler& scheduler) = 0;
    // Called before the schedule is read or changed from outside. If captured steps are ahead of
    // it, the hook brings it up to date.
    virtual void before_access(const Scheduler&) {}
};

// One number for all groups, or one for each group.
class PerGroup {
  public:
    PerGroup(double value) : values_{value}, for_all_(true) {}            // NOLINT
    PerGroup(std::initializer_list<double> values) : values_(values) {}   // NOLINT
    PerGroup(std::vector<double> values) : values_(std::move(values)) {}  // NOLINT

    bool for_all() const { return for_all_; }
    // Returns one number per group. Throws ValueError if their count differs from `groups`.
    std::vector<double> expand(const char* op, const char* what, std::size_t groups) const;

  private:
    std::vector<double> values_;
    bool for_all_ = false;
};

// An enum value that is saved by name.
struct ScheduleChoice {
    std::uint8_t* value;
    std::span<const char* const> names;
};

// A saved field of a schedule, with the name that PyTorch saves it under.
struct ScheduleField {
    const char* name;
    std::variant<double*, std::int64_t*, bool*, std::vector<double>*, ScheduleChoice> value;
    std::int64_t at_least = std::numeric_limits<std::int64_t>::min();  // lower bound of integers
};

// Base class, as torch.optim.lr_scheduler.LRScheduler. The constructor sets the learning rates of
// epoch 0, and each step() sets the learning rates of the next epoch. An epoch is any unit that the
// caller steps by, usually an optimizer step. As in PyTorch, a rate is computed from the epoch and
// either the group's initial rate (before its first scheduler) or its current rate; each schedule
// documents which. The optimizer must outlive the schedule. Not thread-safe.
class Scheduler {
  public:
    explicit Scheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
    virtual ~Scheduler() = default;
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // Calls advance(), or the hooks if there are any.
    void step();
    // Takes one step of the schedule.
    void advance();

    // Returns the rates that the last step set, one per group.
    const std::vector<double>& get_last_lr() const {
        before_access();
        return last_lr_;
    }
    std::int64_t last_epoch() const {
        before_access();
        return last_epoch_;
    }
    // Returns the number of steps, including the one in the constructor.
    std::int64_t step_count() const {
        before_access();
        return step_count_;
    }
    // Returns the number of steps after which the schedule ends and step() throws, if there is one.
    virtual std::optional<std::int64_t> total_steps() const { return std::nullopt; }
    // Returns whether the rates of future steps can be computed in advance. False if they depend on
    // more than the epoch, such as a loss, or if computing them has visible effects.
    virtual bool can_look_ahead() const { return true; }
    // Returns whether each step needs a metric (MetricScheduler).
    virtual bool needs_metric() const { return false; }
    Optimizer& optimizer() { return optimizer_; }

    // Uses PyTorch's names: last_epoch, _step_count, _last_lr, base_lrs, and the schedule's
    // options.
    Tree state_dict() const;
    // Missing options keep their values. Does not change the optimizer's rates, which are part of
    // the optimizer's state.
    void load_state_dict(const Tree& tree);

    // Sets the hooks; nullptr removes them.
    void set_hooks(std::shared_ptr<SchedulerHooks> hooks) { hooks_ = std::move(hooks); }

  protected:
    // Takes the first step. Every constructor of a concrete schedule calls it last.
    virtual void start();
    // Sets the rates of an epoch by calling apply() for each group.
    virtual void set_rates(std::int64_t epoch);
    // Sets a group's rate (and momentum, for schedules that cycle it) for an epoch. base_lr is the
    // group's initial rate, group.lr its current one.
    virtual void apply(std::size_t, GroupRef, double /*base_lr*/, std::int64_t /*epoch*/) {}
    // Returns to epoch 0 inside a SequentialLR. Schedules that continue from the current rate but
    // have a closed form start from the initial rates.
    virtual void restart();
    virtual bool restarts_from_base_lr() const { return false; }
    // Resets the schedule to the state before its first step.
    virtual void reset_epoch() { last_epoch_ = -1; }

    virtual std::vector<ScheduleField> fields() { return {}; }
    virtual Tree save() const;
    virtual void load(const Tree& tree);
    // Write and read the fields. All fields that the tree has are read before any is changed. Lists
    // must keep their length.
    void save_fields(Tree& tree) const;
    void load_fields(const Tree& tree);

    // Returns whether this is the first step rather than a restart.
    bool is_starting() const { return starting_; }
    // Sets the position of the schedule; the current rates become its last rates.
    void set_position(std::int64_t epoch, std::int64_t step_count);
    // Returns each group's rate before its first scheduler, including groups added later.
    const std::vector<double>& base_lrs();
    void set_base_lrs(std::vector<double> rates) { base_lrs_ = std::move(rates); }

  private:
    friend class ComposedScheduler;

    void before_access() const {
        if (hooks_) hooks_->before_access(*this);
    }

    Optimizer& optimizer_;
    std::shared_ptr<SchedulerHooks> hooks_;
    bool starting_ = false;
    std::int64_t last_epoch_ = -1;
    std::int64_t step_count_ = 0;
    std::vector<double> base_lrs_, last_lr_;
};

using LrFactor = std::function<double(std::int64_t epoch)>;

// Base class of schedules with one factor function per group.
class FactorScheduler : public Scheduler {
  protected:
    FactorScheduler(const char* name, Optimizer& optimizer, std::vector<LrFactor> factors);

    double factor(std::size_t group, std::int64_t epoch) const;
    Tree save() const override;

  private:
    std::vector<LrFactor> factors_;
};

// Sets lr = initial lr * factor(epoch).
class LambdaLR : public FactorScheduler {
  public:
    using Factor = LrFactor;

    LambdaLR(Optimizer& optimizer, const Factor& factor);
    // Takes one factor per group. Throws ValueError if their number differs.
    LambdaLR(Optimizer& optimizer, std::vector<Factor> factors);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
};

}  // namespace axle::optim
