#include "optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace axle::inline v0::optim {
namespace {

constexpr double kPi = std::numbers::pi;

std::int64_t positive(const char* op, const char* what, std::int64_t n) {
    if (n <= 0) throw ValueError(str(op, ": ", what, " must be positive: ", n));
    return n;
}

double cosine(double lr, double eta_min, double part) {
    return eta_min + (lr - eta_min) * (1 + std::cos(kPi * part)) / 2;
}

// t / warmup before the warmup's end, then after(t - warmup, training - warmup).
template <class After>
LambdaLR::Factor with_warmup(const char* op, std::int64_t warmup, std::int64_t training,
                             After after) {
    if (warmup < 0 || training < 0)
        throw ValueError(str(op, ": steps must not be negative: ", warmup, " of ", training));
    return [=](std::int64_t t) -> double {
        if (t < warmup) return static_cast<double>(t) / static_cast<double>(warmup);
        return after(static_cast<double>(t - warmup), static_cast<double>(training - warmup));
    };
}

}  // namespace

StepLR::StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma)
    : LambdaLR(optimizer,
               [step_size = positive("StepLR", "step_size", step_size), gamma](std::int64_t t) {
                   const std::int64_t drops = t / step_size;
                   return std::pow(gamma, static_cast<double>(drops));
               }) {}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma)
    : LambdaLR(optimizer, [milestones = std::move(milestones), gamma](std::int64_t t) {
          const auto reached = std::count_if(milestones.begin(), milestones.end(),
                                             [&](std::int64_t m) { return m <= t; });
          return std::pow(gamma, static_cast<double>(reached));
      }) {}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : LambdaLR(optimizer, [gamma](std::int64_t t) { return std::pow(gamma, t); }) {}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, std::int64_t total_iters)
    : LambdaLR(optimizer, [=](std::int64_t t) { return t < total_iters ? factor : 1.0; }) {}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor,
                   std::int64_t total_iters)
    : LambdaLR(
          optimizer, [=, n = positive("LinearLR", "total_iters", total_iters)](std::int64_t t) {
              const auto done = static_cast<double>(std::min(t, n));
              return start_factor + (end_factor - start_factor) * done / static_cast<double>(n);
          }) {}

PolynomialLR::PolynomialLR(Optimizer& optimizer, std::int64_t total_iters, double power)
    : LambdaLR(optimizer,
               [power, n = positive("PolynomialLR", "total_iters", total_iters)](std::int64_t t) {
                   const auto done = static_cast<double>(std::min(t, n));
                   return std::pow(1 - done / static_cast<double>(n), power);
               }) {}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min)
    : Scheduler(optimizer),
      t_max_(positive("CosineAnnealingLR", "t_max", t_max)),
      eta_min_(eta_min) {
    start();
}

void CosineAnnealingLR::apply(std::size_t, GroupRef group, double base_lr, std::int64_t epoch) {
    group.lr = cosine(base_lr, eta_min_, static_cast<double>(epoch) / static_cast<double>(t_max_));
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, std::int64_t t_0,
                                                         std::int64_t t_mult, double eta_min)
    : Scheduler(optimizer),
      t_0_(positive("CosineAnnealingWarmRestarts", "t_0", t_0)),
      t_mult_(positive("CosineAnnealingWarmRestarts", "t_mult", t_mult)),
      eta_min_(eta_min) {
    start();
}

void CosineAnnealingWarmRestarts::apply(std::size_t, GroupRef group, double base_lr,
                                        std::int64_t epoch) {
    std::int64_t length = t_0_;
    if (t_mult_ == 1) epoch %= length;
    for (; epoch >= length; length *= t_mult_) epoch -= length;
    group.lr = cosine(base_lr, eta_min_, static_cast<double>(epoch) / static_cast<double>(length));
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, double max_lr, std::int64_t total_steps,
                       OneCycleOptions options)
    : OneCycleLR(optimizer, std::vector<double>(optimizer.group_count(), max_lr), total_steps,
                 options) {}

OneCycleLR::OneCycleLR(Optimizer& optimizer, std::vector<double> max_lr, std::int64_t total_steps,
                       OneCycleOptions options)
    : Scheduler(optimizer),
      max_lr_(std::move(max_lr)),
      total_steps_(positive("OneCycleLR", "total_steps", total_steps)),
      options_(options) {
    if (max_lr_.size() != optimizer.group_count())
        throw ValueError(str("OneCycleLR: one max_lr per group is needed: ", max_lr_.size(),
                             " for ", optimizer.group_count()));
    if (!(options_.pct_start >= 0 && options_.pct_start <= 1))
        throw ValueError(str("OneCycleLR: pct_start must lie in [0, 1]: ", options_.pct_start));
    for (std::size_t g = 0; g < max_lr_.size(); ++g)
        optimizer.group(g).initial_lr = max_lr_[g] / options_.div_factor;
    start();
}

double OneCycleLR::anneal(double start, double end, double part) const {
    if (options_.anneal == Anneal::linear) return (end - start) * part + start;
    return end + (start - end) / 2 * (std::cos(kPi * part) + 1);
}

void OneCycleLR::apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) {
    if (epoch > total_steps_)
        throw ValueError(str("OneCycleLR: step ", epoch, " is beyond the ", total_steps_,
                             " steps of the schedule"));
    const OneCycleOptions& o = options_;
    const double max_lr = max_lr_[std::min(index, max_lr_.size() - 1)];
    const auto total = static_cast<double>(total_steps_);
    const double top = o.pct_start * total - 1;  // the epoch of max_lr
    struct Phase {
        double end, lr_from, lr_to, momentum_from, momentum_to;
    };
    const double low = o.base_momentum, high = o.max_momentum, last = base_lr / o.final_div_factor;
    const Phase up = {top, base_lr, max_lr, high, low};
    const Phase two[] = {up, {total - 1, max_lr, last, low, high}};
    const Phase three[] = {up,
                           {2 * o.pct_start * total - 2, max_lr, base_lr, low, high},
                           {total - 1, base_lr, last, high, high}};
    const Phase* phase = o.three_phase ? three : two;
    const Phase* const final_phase = phase + (o.three_phase ? 2 : 1);
    const auto t = static_cast<double>(epoch);
    double begin = 0;
    for (; phase != final_phase && t > phase->end; ++phase) begin = phase->end;
    const double part = (t - begin) / (phase->end - begin);
    group.lr = anneal(phase->lr_from, phase->lr_to, part);
    if (o.cycle_momentum) group.momentum = anneal(phase->momentum_from, phase->momentum_to, part);
}

LambdaLR get_constant_schedule(Optimizer& optimizer) {
    return LambdaLR(optimizer, [](std::int64_t) { return 1.0; });
}

LambdaLR get_constant_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps) {
    const auto one = [](double, double) { return 1.0; };
    return LambdaLR(optimizer,
                    with_warmup("get_constant_schedule_with_warmup", warmup_steps, 0, one));
}

LambdaLR get_linear_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps) {
    const auto fall = [](double t, double n) { return std::max(0.0, (n - t) / std::max(1.0, n)); };
    return LambdaLR(optimizer, with_warmup("get_linear_schedule_with_warmup", warmup_steps,
                                           training_steps, fall));
}

LambdaLR get_cosine_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps, double cycles,
                                         double min_lr_ratio) {
    const auto fall = [=](double t, double n) {
        return std::max(0.0, cosine(1, min_lr_ratio, 2 * cycles * t / std::max(1.0, n)));
    };
    return LambdaLR(optimizer, with_warmup("get_cosine_schedule_with_warmup", warmup_steps,
                                           training_steps, fall));
}

}  // namespace axle::inline v0::optim
