// Learning rate schedules: the base class Scheduler, and LambdaLR. optim/schedules/schedules.h
// declares or includes all other schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "optim/optimizer.h"

namespace axle::optim {

class Scheduler;

// Functions that replace Scheduler::step(). They decide how often advance() is called. The number
// of calls can be 0.
struct SchedulerHooks {
    virtual ~SchedulerHooks() = default;
    virtual void step(Scheduler& scheduler) = 0;
    // Called before the caller reads or changes the schedule. If replayed steps have not advanced
    // the schedule on the host, the hook advances it.
    virtual void before_access(const Scheduler&) {}
    // Called when the scheduler is destroyed or its hooks are replaced or removed.
    virtual void detached(const Scheduler&) noexcept {}
};

// One number for all groups, or one for each group.
class PerGroup {
  public:
    PerGroup(double value);                          // NOLINT
    PerGroup(std::initializer_list<double> values);  // NOLINT
    PerGroup(std::vector<double> values);            // NOLINT

    bool for_all() const { return for_all_; }
    // Returns one number per group. Throws ValueError if the object is a list whose length is not
    // `groups`.
    std::vector<double> expand(const char* op, const char* what, std::size_t groups) const;

  private:
    std::vector<double> values_;
    bool for_all_ = false;
};

// An enum value that a state dict contains by name.
struct ScheduleChoice {
    std::uint8_t* value = nullptr;
    std::span<const char* const> names = {};
};

// A saved field of a schedule, with its name in state dicts of PyTorch.
struct ScheduleField {
    ScheduleField(const char* name_, double* value) : name(name_), number(value) {}
    // `lower_bound` is the smallest integer that load_fields() accepts.
    ScheduleField(const char* name_, std::int64_t* value, std::int64_t lower_bound = INT64_MIN)
        : name(name_), integer(value), at_least(lower_bound) {}
    ScheduleField(const char* name_, bool* value) : name(name_), flag(value) {}
    ScheduleField(const char* name_, std::vector<double>* value) : name(name_), list(value) {}
    ScheduleField(const char* name_, ScheduleChoice value) : name(name_), choice(value) {}

    // Calls f with the pointer that is not null, or with `choice`, and returns the result of f.
    template <class F>
    auto visit(F&& f) const {
        if (number != nullptr) return f(number);
        if (integer != nullptr) return f(integer);
        if (flag != nullptr) return f(flag);
        return list != nullptr ? f(list) : f(choice);
    }

    const char* name;
    double* number = nullptr;
    std::int64_t* integer = nullptr;
    bool* flag = nullptr;
    std::vector<double>* list = nullptr;
    ScheduleChoice choice = {};
    std::int64_t at_least = INT64_MIN;
};

// Base class of schedules, like torch.optim.lr_scheduler.LRScheduler. The constructor sets the
// learning rates of epoch 0, and each step() sets the learning rates of the next epoch. The caller
// decides what an epoch is; usually it is an optimizer step. As in PyTorch, a rate is computed from
// the epoch and either the initial rate of the group (before its first scheduler) or its current
// rate. If the optimizer was destroyed, functions that use it, such as step(), throw
// UsageError. Not thread-safe.
//
// A schedule can be moved before it is prepared, for example to store it in a vector. The object
// that was moved from must only be destroyed. The move throws UsageError if hooks are set or if the
// schedule is a part of a composed schedule, because both refer to the object.
class Scheduler {
  public:
    explicit Scheduler(Optimizer& optimizer) : optimizer_(optimizer.address_) {}
    virtual ~Scheduler() { set_hooks(nullptr); }
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // Calls the hooks if they are set, otherwise advance().
    void step();
    // Sets the rates of the next epoch, without calling hooks.
    void advance();

    // Returns the rates after the last step, or the rates of a loaded state, one per group.
    const std::vector<double>& get_last_lr() const {
        before_access();
        return last_lr_;
    }
    // Returns the epoch of the current rates, which is 0 after construction.
    std::int64_t last_epoch() const {
        before_access();
        return last_epoch_;
    }
    // Returns the number of steps, including the one in the constructor.
    std::int64_t step_count() const {
        before_access();
        return step_count_;
    }
    // Returns the number of steps after which step() throws, or nullopt if the schedule has no end.
    virtual std::optional<std::int64_t> total_steps() const { return std::nullopt; }
    // Returns whether the rates of future steps can be computed in advance. This is false if they
    // depend on more than the epoch, such as a loss, or if their computation has side effects.
    virtual bool can_look_ahead() const { return true; }
    // Returns whether each step needs a metric (MetricScheduler).
    virtual bool needs_metric() const { return false; }
    // Returns the optimizer. Throws UsageError if it was destroyed or if this object was moved.
    Optimizer& optimizer();
    // Returns whether the schedule sets the rates of this optimizer.
    bool is_for(const Optimizer& optimizer) const {
        return optimizer_ && *optimizer_ == &optimizer;
    }

    // Returns the state with PyTorch's names: last_epoch, _step_count, _last_lr, base_lrs (if the
    // schedule uses initial rates), and the options of the schedule.
    Tree state_dict() const;
    // Loads a state from state_dict(). Missing options keep their values. Does not change the rates
    // of the optimizer, because they are loaded with the state of the optimizer; only GreedyLR
    // changes them. Throws ValueError if a value has another type or is out of range, or if the
    // length of a list differs from this schedule, and IndexError if last_epoch, _last_lr, base_lrs
    // of a schedule that uses initial rates, or _schedulers of a composed schedule is missing.
    void load_state_dict(const Tree& tree);

    // Sets the hooks; nullptr removes them.
    void set_hooks(std::shared_ptr<SchedulerHooks> hooks);

  protected:
    Scheduler(Scheduler&& other);  // NOLINT: throws

    // Takes the first step. Constructors of derived classes must call this function at their end.
    virtual void start();
    // Sets the rates of an epoch by calling apply() for each group.
    virtual void set_rates(std::int64_t epoch);
    // Sets the rate of a group for an epoch; schedules that cycle the momentum also set it. base_lr
    // is the initial rate of the group, group.lr its current rate.
    virtual void apply(std::size_t, GroupRef, double /*base_lr*/, std::int64_t /*epoch*/) {}
    // Sets the schedule to epoch 0; SequentialLR calls this. If restarts_from_base_lr() is true,
    // the schedule starts from the initial rates, otherwise from the current rates.
    virtual void restart();
    virtual bool restarts_from_base_lr() const { return false; }
    // Resets the schedule to the state before its first step.
    virtual void reset_epoch() { last_epoch_ = -1; }

    virtual std::vector<ScheduleField> fields();
    virtual Tree save() const;
    virtual void load(const Tree& tree);
    // Write the fields to a tree and read them from it. load_fields() reads all fields before it
    // changes any. It throws ValueError if a value has another type, a list has another length, an
    // integer is too small, or a name is unknown.
    void save_fields(Tree& tree) const;
    void load_fields(const Tree& tree);

    // Returns whether the current step is the first step and not a restart.
    bool is_starting() const { return starting_; }
    // Sets the epoch and the step count, and stores the current rates as the last rates.
    void set_position(std::int64_t epoch, std::int64_t step_count);
    // Returns the rate of each group before its first scheduler, including groups that were added
    // later.
    const std::vector<double>& base_lrs();
    void set_base_lrs(std::vector<double> rates);

  private:
    friend class ComposedScheduler;

    void before_access() const {
        if (hooks_) hooks_->before_access(*this);
    }

    // The address of the optimizer, which changes when the optimizer is moved, and is null after
    // the optimizer is destroyed.
    std::shared_ptr<Optimizer* const> optimizer_;
    std::shared_ptr<SchedulerHooks> hooks_;
    bool starting_ = false;
    bool is_part_ = false;  // whether a composed schedule refers to this object
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

// The rate is lr0 * factor(epoch), where lr0 is the initial rate.
class LambdaLR : public FactorScheduler {
  public:
    using Factor = LrFactor;

    LambdaLR(Optimizer& optimizer, const Factor& factor);
    // Creates a schedule with one factor function per group. Throws ValueError if the number of
    // functions is not the number of groups.
    LambdaLR(Optimizer& optimizer, std::vector<Factor> factors);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
};

}  // namespace axle::optim
