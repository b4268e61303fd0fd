// CyclicLR and OneCycleLR, which can also cycle the momentum: it falls while the rate rises.
#include <algorithm>
#include <cmath>
#include <utility>

#include "optim/schedules/schedule_checks.h"
#include "optim/schedules/schedules.h"

namespace axle::optim {
namespace {

constexpr const char* kModes[] = {"triangular", "triangular2", "exp_range"};
constexpr const char* kScales[] = {"cycle", "iterations"};

// Returns the value of a group. Groups that were added after construction use the last value.
double value_of_group(const std::vector<double>& values, std::size_t index) {
    return values[std::min(index, values.size() - 1)];
}

void check_momentum(const char* op, const Optimizer& optimizer, bool cycles) {
    if (cycles && !optimizer.has_momentum())
        throw ValueError(str(op,
                             ": cycle_momentum needs an optimizer with momentum, which this "
                             "optimizer does not have; set cycle_momentum to false"));
}

}  // namespace

CyclicLR::CyclicLR(Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr,
                   CyclicOptions options)
    : Scheduler(optimizer),
      max_lrs_(max_lr.expand("CyclicLR", "max_lr", optimizer.group_count())),
      base_momentums_(
          options.base_momentum.expand("CyclicLR", "base_momentum", optimizer.group_count())),
      max_momentums_(
          options.max_momentum.expand("CyclicLR", "max_momentum", optimizer.group_count())),
      gamma_(options.gamma),
      mode_(options.mode),
      scale_mode_(options.mode == CyclicMode::exp_range ? CyclicScale::iterations
                                                        : CyclicScale::cycle),
      scale_fn_(std::move(options.scale_fn)),
      cycle_momentum_(options.cycle_momentum) {
    check_momentum("CyclicLR", optimizer, cycle_momentum_);
    const auto up = static_cast<double>(positive("CyclicLR", "step_size_up", options.step_size_up));
    const auto down = static_cast<double>(positive(
        "CyclicLR", "step_size_down", options.step_size_down.value_or(options.step_size_up)));
    total_size_ = up + down;
    step_ratio_ = up / total_size_;
    if (scale_fn_) scale_mode_ = options.scale_mode;
    std::vector<double> lows = base_lr.expand("CyclicLR", "base_lr", optimizer.group_count());
    for (std::size_t g = 0; g < lows.size(); ++g) optimizer.group(g).lr = lows[g];
    start();
    set_base_lrs(std::move(lows));  // the lower bounds replace the initial rates
}

double CyclicLR::height(double cycle, double epoch) const {
    if (scale_fn_) return scale_fn_(scale_mode_ == CyclicScale::cycle ? cycle : epoch);
    switch (mode_) {
        case CyclicMode::triangular:
            return 1;
        case CyclicMode::triangular2:
            return 1 / std::pow(2.0, cycle - 1);
        case CyclicMode::exp_range:
            break;
    }
    return std::pow(gamma_, epoch);
}

void CyclicLR::apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) {
    const auto t = static_cast<double>(epoch);
    const double cycle = std::floor(1 + t / total_size_);
    const double x = 1 + t / total_size_ - cycle;
    const double part = x <= step_ratio_ ? x / step_ratio_ : (x - 1) / (step_ratio_ - 1);
    const double scale = height(cycle, t);
    group.lr = base_lr + (value_of_group(max_lrs_, index) - base_lr) * part * scale;
    if (!cycle_momentum_) return;
    const double low = value_of_group(base_momentums_, index),
                 high = value_of_group(max_momentums_, index);
    group.momentum = high - (high - low) * part * scale;
}

std::vector<ScheduleField> CyclicLR::fields() {
    std::vector<ScheduleField> all = {{"max_lrs", &max_lrs_},
                                      {"total_size", &total_size_},
                                      {"step_ratio", &step_ratio_},
                                      {"mode", choice(mode_, kModes)},
                                      {"gamma", &gamma_},
                                      {"scale_mode", choice(scale_mode_, kScales)},
                                      {"cycle_momentum", &cycle_momentum_}};
    if (cycle_momentum_) {
        all.push_back({"base_momentums", &base_momentums_});
        all.push_back({"max_momentums", &max_momentums_});
    }
    return all;
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, const PerGroup& max_lr, std::int64_t total_steps,
                       const OneCycleOptions& options)
    : Scheduler(optimizer),
      max_lrs_(max_lr.expand("OneCycleLR", "max_lr", optimizer.group_count())),
      base_momentums_(
          options.base_momentum.expand("OneCycleLR", "base_momentum", optimizer.group_count())),
      max_momentums_(
          options.max_momentum.expand("OneCycleLR", "max_momentum", optimizer.group_count())),
      total_steps_(positive("OneCycleLR", "total_steps", total_steps)),
      pct_start_(options.pct_start),
      div_factor_(options.div_factor),
      final_div_factor_(options.final_div_factor),
      anneal_(options.anneal),
      cycle_momentum_(options.cycle_momentum),
      three_phase_(options.three_phase) {
    check_momentum("OneCycleLR", optimizer, cycle_momentum_);
    if (!(pct_start_ >= 0 && pct_start_ <= 1))
        throw ValueError(str("OneCycleLR: pct_start must be in [0, 1]: ", pct_start_));
    for (std::size_t g = 0; g < max_lrs_.size(); ++g)
        optimizer.group(g).initial_lr = max_lrs_[g] / div_factor_;
    start();
}

void OneCycleLR::set_total_steps(std::int64_t total_steps) {
    if (total_steps < std::max<std::int64_t>(1, last_epoch()))
        throw ValueError(
            str("OneCycleLR: total_steps must be positive and at least the number of "
                "steps taken (",
                last_epoch(), "): ", total_steps));
    Tree state = state_dict();
    state.set("total_steps", total_steps);
    load_state_dict(state);
}

double OneCycleLR::interpolate(double start, double end, double part) const {
    if (anneal_ == Anneal::linear) return (end - start) * part + start;
    return end + (start - end) / 2 * (std::cos(kPi * part) + 1);
}

void OneCycleLR::apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) {
    if (epoch > total_steps_)
        throw ValueError(str("OneCycleLR: step ", epoch, " exceeds the ", total_steps_,
                             " steps of the schedule"));
    const double max_lr = value_of_group(max_lrs_, index);
    const double low = value_of_group(base_momentums_, index),
                 high = value_of_group(max_momentums_, index);
    const auto total = static_cast<double>(total_steps_);
    const double last = base_lr / final_div_factor_;
    struct Phase {
        double end, lr_from, lr_to, momentum_from, momentum_to;
    };
    const Phase up = {pct_start_ * total - 1, base_lr, max_lr, high, low};
    const Phase two[] = {up, {total - 1, max_lr, last, low, high}};
    const Phase three[] = {up,
                           {2 * pct_start_ * total - 2, max_lr, base_lr, low, high},
                           {total - 1, base_lr, last, high, high}};
    const Phase* phase = three_phase_ ? three : two;
    const Phase* const final_phase = phase + (three_phase_ ? 2 : 1);
    const auto t = static_cast<double>(epoch);
    double begin = 0;
    for (; phase != final_phase && t > phase->end; ++phase) begin = phase->end;
    const double part = phase->end == begin ? 1 : (t - begin) / (phase->end - begin);
    group.lr = interpolate(phase->lr_from, phase->lr_to, part);
    if (cycle_momentum_)
        group.momentum = interpolate(phase->momentum_from, phase->momentum_to, part);
}

std::vector<ScheduleField> OneCycleLR::fields() {
    return {{"total_steps", &total_steps_, 1},
            {"_anneal_func_type", choice(anneal_, kAnnealNames)},
            {"cycle_momentum", &cycle_momentum_}};
}

}  // namespace axle::optim
