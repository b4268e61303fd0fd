// Learning rate schedules: the base, and the one that takes functions. The others are in
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

// A number for all groups, or one for each.
class PerGroup {
  public:
    PerGroup(double value) : values_{value}, for_all_(true) {}            // NOLINT
    PerGroup(std::initializer_list<double> values) : values_(values) {}   // NOLINT
    PerGroup(std::vector<double> values) : values_(std::move(values)) {}  // NOLINT

    bool for_all() const { return for_all_; }
    // One for each of `groups`; ValueError where there are more or less.
    std::vector<double> spread(const char* op, const char* what, std::size_t groups) const;

  private:
    std::vector<double> values_;
    bool for_all_ = false;
};

// A value of an enumeration, saved by name.
struct ScheduleChoice {
    std::uint8_t* value;
    std::span<const char* const> names;
};

// What a schedule saves beside its progress, by the name that PyTorch saves it under.
struct ScheduleField {
    const char* name;
    std::variant<double*, std::int64_t*, bool*, std::vector<double>*, ScheduleChoice> value;
    std::int64_t at_least = std::numeric_limits<std::int64_t>::min();  // of integers
};

// As torch.optim.lr_scheduler.LRScheduler: construction sets the learning rates of epoch 0, and
// each step() those of the next. An epoch is whatever the caller counts, mostly optimizer steps.
// Rates follow from the epoch and, as in PyTorch, from the rate that a group had before its first
// scheduler or from the one that it has now: each schedule says which. Refers to its optimizer,
// which must outlive it.
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
    // Whether each step takes a number that only the caller has (MetricScheduler).
    virtual bool needs_metric() const { return false; }
    Optimizer& optimizer() { return optimizer_; }

    // PyTorch's names: last_epoch, _step_count, _last_lr, base_lrs, and the schedule's options.
    Tree state_dict() const;
    // Options that the tree lacks stay as they are. Leaves the optimizer's rates alone: they come
    // back with its own state.
    void load_state_dict(const Tree& tree);

    // Null takes it away.
    void set_gate(std::shared_ptr<SchedulerGate> gate) { gate_ = std::move(gate); }

  protected:
    // The first step, which every constructor of a schedule ends with.
    virtual void start();
    // Sets the rates of an epoch: those of apply(), group by group.
    virtual void set_rates(std::int64_t epoch);
    // Sets a group's rate (and momentum, for schedules that cycle it) for an epoch. `base_lr` is
    // the group's initial rate, and group.lr the one that it has now.
    virtual void apply(std::size_t, GroupRef, double /*base_lr*/, std::int64_t /*epoch*/) {}
    // Back to epoch 0 in a SequentialLR: from the initial rates where a schedule goes on from the
    // present ones but is known in closed form too.
    virtual void restart();
    virtual bool restarts_from_base() const { return false; }
    // As if it had not begun.
    virtual void undo() { last_epoch_ = -1; }

    virtual std::vector<ScheduleField> fields() { return {}; }
    virtual Tree save() const;
    virtual void load(const Tree& tree);
    // The fields that a tree has, all read before any is written. Lists keep their length.
    void save_fields(Tree& tree) const;
    void load_fields(const Tree& tree);

    // Whether this is the first step, and not a restart.
    bool is_starting() const { return starting_; }
    // Says where the schedule is, with the rates that there are.
    void stand_at(std::int64_t epoch, std::int64_t step_count);
    // Of all groups, added ones included; each group's rate before its first scheduler.
    const std::vector<double>& base_lrs();
    void set_base_lrs(std::vector<double> rates) { base_lrs_ = std::move(rates); }

  private:
    friend class ComposedScheduler;

    void before_access() const {
        if (gate_) gate_->before_access(*this);
    }

    Optimizer& optimizer_;
    std::shared_ptr<SchedulerGate> gate_;
    bool starting_ = false;
    std::int64_t last_epoch_ = -1;
    std::int64_t step_count_ = 0;
    std::vector<double> base_lrs_, last_lr_;
};

using LrFactor = std::function<double(std::int64_t epoch)>;

// A schedule of functions, one per group.
class FactorScheduler : public Scheduler {
  protected:
    FactorScheduler(const char* name, Optimizer& optimizer, std::vector<LrFactor> factors);

    double factor(std::size_t group, std::int64_t epoch) const;
    Tree save() const override;

  private:
    std::vector<LrFactor> factors_;
};

// lr = initial lr * factor(epoch).
class LambdaLR : public FactorScheduler {
  public:
    using Factor = LrFactor;

    LambdaLR(Optimizer& optimizer, const Factor& factor);
    // One per group (ValueError).
    LambdaLR(Optimizer& optimizer, std::vector<Factor> factors);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
};

}  // namespace axle::inline v0::optim
