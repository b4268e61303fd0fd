// The schedules of torch.optim.lr_scheduler and of Transformers, in closed form: `t` is the epoch
// and `lr0` a group's initial rate. Wrong numbers throw ValueError.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "optim/scheduler.h"

namespace axle::inline v0::optim {

// lr0 * gamma^floor(t / step_size)
struct StepLR : LambdaLR {
    StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);
};

// lr0 * gamma^(milestones that t has reached)
struct MultiStepLR : LambdaLR {
    MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma = 0.1);
};

// lr0 * gamma^t
struct ExponentialLR : LambdaLR {
    ExponentialLR(Optimizer& optimizer, double gamma);
};

// lr0 * factor until total_iters, lr0 from there on
struct ConstantLR : LambdaLR {
    ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, std::int64_t total_iters = 5);
};

// From lr0 * start_factor to lr0 * end_factor in total_iters even steps
struct LinearLR : LambdaLR {
    LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
             std::int64_t total_iters = 5);
};

// lr0 * (1 - t / total_iters)^power, then 0
struct PolynomialLR : LambdaLR {
    PolynomialLR(Optimizer& optimizer, std::int64_t total_iters = 5, double power = 1);
};

// eta_min + (lr0 - eta_min) (1 + cos(pi t / t_max)) / 2, which rises again after t_max.
class CosineAnnealingLR : public Scheduler {
  public:
    CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;

  private:
    std::int64_t t_max_;
    double eta_min_;
};

// The same over t_0 epochs, then from lr0 again over t_0 * t_mult, and so on.
class CosineAnnealingWarmRestarts : public Scheduler {
  public:
    CosineAnnealingWarmRestarts(Optimizer& optimizer, std::int64_t t_0, std::int64_t t_mult = 1,
                                double eta_min = 0);

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;

  private:
    std::int64_t t_0_, t_mult_;
    double eta_min_;
};

enum class Anneal : std::uint8_t { cosine, linear };

struct OneCycleOptions {
    double pct_start = 0.3;  // part of the cycle in which the rate rises
    Anneal anneal = Anneal::cosine;
    bool cycle_momentum = true;  // momentum, or Adam's first beta, against the rate
    double base_momentum = 0.85;
    double max_momentum = 0.95;
    double div_factor = 25;         // the rate starts at max_lr / div_factor
    double final_div_factor = 1e4;  // and ends at that / final_div_factor
    bool three_phase = false;       // as long down as up, then to the end
};

// Smith and Topin's 1cycle policy: up to max_lr and down to almost nothing in total_steps, the step
// of construction included. A step beyond throws ValueError.
class OneCycleLR : public Scheduler {
  public:
    OneCycleLR(Optimizer& optimizer, double max_lr, std::int64_t total_steps,
               OneCycleOptions options = {});
    // A rate per group.
    OneCycleLR(Optimizer& optimizer, std::vector<double> max_lr, std::int64_t total_steps,
               OneCycleOptions options = {});

    std::optional<std::int64_t> total_steps() const override { return total_steps_; }

  protected:
    void apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) override;

  private:
    double anneal(double start, double end, double part) const;

    std::vector<double> max_lr_;
    std::int64_t total_steps_;
    OneCycleOptions options_;
};

// Transformers' schedules. With warmup: lr0 * t / warmup_steps until warmup_steps; what comes then
// is written for p = (t - warmup_steps) / (training_steps - warmup_steps).

// lr0
LambdaLR get_constant_schedule(Optimizer& optimizer);
// lr0 after the warmup
LambdaLR get_constant_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps);
// lr0 max(0, 1 - p)
LambdaLR get_linear_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps);
// lr0 max(0, r + (1 - r) (1 + cos(2 pi cycles p)) / 2) with r = min_lr_ratio: with half a cycle,
// from lr0 to r lr0. After training_steps it follows the cosine up again.
LambdaLR get_cosine_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps, double cycles = 0.5,
                                         double min_lr_ratio = 0);

}  // namespace axle::inline v0::optim
