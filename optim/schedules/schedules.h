// Declares the schedules of torch.optim.lr_scheduler that depend only on the epoch, and includes
// all other schedules. In formulas, `t` is the epoch and `lr0` the initial rate of a group. As in
// PyTorch, most schedules multiply the current rate, so that several schedules can be chained; the
// formulas describe a schedule that is used alone. Constructors throw ValueError for a number that
// is not in the range that a comment states, and for a list that does not have one number per
// group.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "optim/schedules/composed_schedules.h"
#include "optim/schedules/get_scheduler.h"
#include "optim/schedules/metric_schedules.h"
#include "optim/schedules/param_scheduler.h"
#include "optim/schedules/scheduler.h"

namespace axle::optim {

// Computes lr *= factor(t) at each step except the first.
class MultiplicativeLR : public FactorScheduler {
  public:
    using Factor = LrFactor;

    MultiplicativeLR(Optimizer& optimizer, const Factor& factor);
    // Creates a schedule with one factor function per group. Throws ValueError if the number of
    // functions is not the number of groups.
    MultiplicativeLR(Optimizer& optimizer, std::vector<Factor> factors);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
};

// Base class of schedules that update the current rate, but also have a closed formula of the rate.
class ChainableScheduler : public Scheduler {
  protected:
    using Scheduler::Scheduler;
    bool restarts_from_base_lr() const override { return true; }
};

// The rate is lr0 * gamma^floor(t / step_size). step_size must be positive.
class StepLR : public ChainableScheduler {
  public:
    StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    std::int64_t step_size_;
    double gamma_;
};

// The rate is lr0 * gamma^(number of milestones in [0, t]).
class MultiStepLR : public ChainableScheduler {
  public:
    MultiStepLR(Optimizer& optimizer, const std::vector<std::int64_t>& milestones,
                double gamma = 0.1);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;
    // The saved "milestones" map each milestone to the number of its occurrences: {"5": 1, "20":
    // 2}.
    Tree save() const override;
    void load(const Tree& tree) override;

  private:
    struct Milestone {
        std::int64_t epoch, times;
    };
    std::vector<Milestone> milestones_;  // unique, sorted
    double gamma_;
};

// The rate is lr0 * gamma^t.
class ExponentialLR : public ChainableScheduler {
  public:
    ExponentialLR(Optimizer& optimizer, double gamma);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double gamma_;
};

// The rate is lr0 * factor until total_iters, then lr0. If total_iters is not positive, the rate
// stays lr0 * factor, as in PyTorch. factor must be in [0, 1].
class ConstantLR : public ChainableScheduler {
  public:
    ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, std::int64_t total_iters = 5);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double factor_;
    std::int64_t total_iters_;
};

// The rate changes linearly from lr0 * start_factor to lr0 * end_factor in total_iters steps, and
// then stays the same. start_factor must be in (0, 1], end_factor in [0, 1], and total_iters
// positive.
class LinearLR : public ChainableScheduler {
  public:
    LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
             std::int64_t total_iters = 5);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double start_factor_, end_factor_;
    std::int64_t total_iters_;
};

// The rate is lr0 * (1 - t / total_iters)^power until total_iters, then 0. total_iters must be
// positive.
class PolynomialLR : public ChainableScheduler {
  public:
    PolynomialLR(Optimizer& optimizer, std::int64_t total_iters = 5, double power = 1);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    std::int64_t total_iters_;
    double power_;
};

// The rate is eta_min + (lr0 - eta_min) (1 + cos(pi t / t_max)) / 2; it rises again after t_max.
// t_max must be positive.
class CosineAnnealingLR : public ChainableScheduler {
  public:
    CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    std::int64_t t_max_;
    double eta_min_;
};

// The rate follows the cosine of CosineAnnealingLR and restarts from lr0 at the end of each cycle.
// The first cycle has t_0 epochs, and each later cycle is t_mult times as long as the previous
// cycle. t_0 and t_mult must be positive.
class CosineAnnealingWarmRestarts : public Scheduler {
  public:
    CosineAnnealingWarmRestarts(Optimizer& optimizer, std::int64_t t_0, std::int64_t t_mult = 1,
                                double eta_min = 0);

  protected:
    void set_rates(std::int64_t epoch) override;
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    std::int64_t t_0_, t_mult_;
    double eta_min_;
    std::int64_t t_i_, t_cur_ = 0;  // length of the current cycle, and the epoch within the cycle
};

enum class Anneal : std::uint8_t { cosine, linear };

// Changes the rate from its current value to swa_lr in anneal_epochs epochs, then keeps it
// constant, as torch.optim.swa_utils.SWALR does. anneal_epochs must not be negative.
class SWALR : public Scheduler {
  public:
    SWALR(Optimizer& optimizer, const PerGroup& swa_lr, std::int64_t anneal_epochs = 10,
          Anneal anneal = Anneal::cosine);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double weight_at(std::int64_t epoch) const;

    std::vector<double> swa_lrs_;
    std::int64_t anneal_epochs_;
    Anneal anneal_;
};

enum class CyclicMode : std::uint8_t { triangular, triangular2, exp_range };
enum class CyclicScale : std::uint8_t { cycle, iterations };

struct CyclicOptions {
    // The numbers of steps in which the rate rises and falls, both positive. If step_size_down is
    // unset, it equals step_size_up.
    std::int64_t step_size_up = 2000;
    std::optional<std::int64_t> step_size_down = {};
    // The height of the peaks: constant (triangular), halved in each cycle (triangular2), or scaled
    // by gamma^t (exp_range).
    CyclicMode mode = CyclicMode::triangular;
    double gamma = 1;
    // A function that replaces mode if it is set. It maps the number of the cycle (counted from 1)
    // or the epoch, as scale_mode selects, to the factor of the peak height.
    std::function<double(double)> scale_fn = {};
    CyclicScale scale_mode = CyclicScale::cycle;
    bool cycle_momentum = true;  // whether momentum (Adam's first beta) falls as the rate rises
    PerGroup base_momentum = 0.8;
    PerGroup max_momentum = 0.9;
};

// Cyclical learning rates (Smith, 2017): the rate repeatedly rises from base_lr to max_lr and falls
// again. The constructor throws ValueError if cycle_momentum is true and the optimizer has no
// momentum.
class CyclicLR : public Scheduler {
  public:
    CyclicLR(Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr,
             CyclicOptions options = {});

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double height(double cycle, double epoch) const;

    std::vector<double> max_lrs_, base_momentums_, max_momentums_;
    double total_size_, step_ratio_, gamma_;
    CyclicMode mode_;
    CyclicScale scale_mode_;
    std::function<double(double)> scale_fn_;
    bool cycle_momentum_;
};

struct OneCycleOptions {
    double pct_start = 0.3;  // fraction of the cycle in which the rate rises, in [0, 1]
    Anneal anneal = Anneal::cosine;
    bool cycle_momentum = true;  // whether momentum (Adam's first beta) falls as the rate rises
    PerGroup base_momentum = 0.85;
    PerGroup max_momentum = 0.95;
    double div_factor = 25;         // the initial rate is max_lr / div_factor
    double final_div_factor = 1e4;  // the final rate is the initial rate / final_div_factor
    // If true, the rate first falls back to the initial rate, in as many steps as it has risen, and
    // then to the final rate. If false, it falls to the final rate directly.
    bool three_phase = false;
};

// The 1cycle policy (Smith and Topin, 2018): raises the rate to max_lr and lowers it to the final
// rate, which it reaches at epoch total_steps - 1. total_steps must be positive. As in PyTorch, a
// step to an epoch above total_steps throws ValueError. The constructor throws ValueError if
// cycle_momentum is true and the optimizer has no momentum.
class OneCycleLR : public Scheduler {
  public:
    OneCycleLR(Optimizer& optimizer, const PerGroup& max_lr, std::int64_t total_steps,
               const OneCycleOptions& options = {});

    std::optional<std::int64_t> total_steps() const override { return total_steps_; }
    // Changes the number of steps, for example to train longer after a state was loaded. The next
    // step uses the rate of the new schedule. Throws ValueError if total_steps is not positive or
    // more steps have already been taken.
    void set_total_steps(std::int64_t total_steps);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;
    std::vector<ScheduleField> fields() override;

  private:
    double interpolate(double start, double end, double part) const;

    std::vector<double> max_lrs_, base_momentums_, max_momentums_;
    std::int64_t total_steps_;
    double pct_start_, div_factor_, final_div_factor_;
    Anneal anneal_;
    bool cycle_momentum_, three_phase_;
};

}  // namespace axle::optim
