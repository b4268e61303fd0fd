#include "optim/schedules/param_scheduler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "optim/schedules/schedule_checks.h"

namespace axle::optim {
namespace {

constexpr const char* kName = "OptimizerParamScheduler";
constexpr const char* kLrDecays[] = {"constant", "linear", "cosine", "inverse-square-root", "WSD"};
constexpr const char* kWsdDecays[] = {"linear", "cosine", "exponential", "minus_sqrt"};
constexpr const char* kIncreases[] = {"constant", "linear", "cosine"};

template <class E, std::size_t n>
E value_of(const char* option, const char* const (&names)[n], std::string_view name) {
    std::string known;
    for (std::size_t i = 0; i < n; ++i) {
        if (name == names[i]) return static_cast<E>(i);
        known += str(i == 0 ? "" : ", ", names[i]);
    }
    throw ValueError(str(option, ": must be one of ", known, ": '", name, "'"));
}

void check(bool is_valid, const std::string& what, double value) {
    if (!is_valid || !std::isfinite(value))
        throw ValueError(str(kName, ": ", what, is_valid ? ", and finite: " : ": ", value));
}

double half_cosine(double x) { return 0.5 * (1 + std::cos(kPi * x)); }

double wsd_share_at(WsdDecay decay, double q) {
    switch (decay) {
        case WsdDecay::linear:
            return 1 - q;
        case WsdDecay::cosine:
            return half_cosine(q);
        case WsdDecay::exponential:
            return 2 * std::pow(0.5, q) - 1;
        case WsdDecay::minus_sqrt:
            return 1 - std::sqrt(q);
    }
    return 0;
}

}  // namespace

LrDecay lr_decay_of(std::string_view name) {
    return value_of<LrDecay>("lr_decay_style", kLrDecays, name);
}
WsdDecay wsd_decay_of(std::string_view name) {
    return value_of<WsdDecay>("lr_wsd_decay_style", kWsdDecays, name);
}
WeightDecayIncrease weight_decay_increase_of(std::string_view name) {
    return value_of<WeightDecayIncrease>("weight_decay_incr_style", kIncreases, name);
}

OptimizerParamScheduler::OptimizerParamScheduler(Optimizer& optimizer,
                                                 const ParamScheduleOptions& options)
    : Scheduler(optimizer),
      options_(options),
      sets_weight_decay_(options.start_weight_decay.has_value()),
      start_weight_decay_(options.start_weight_decay.value_or(0)),
      end_weight_decay_(options.end_weight_decay.value_or(0)) {
    const ParamScheduleOptions& o = options_;
    const double largest_lr = base_lrs().front();
    const std::string range = str(" must be between 0 and the initial rate ", largest_lr);
    check(o.min_lr >= 0 && o.min_lr <= largest_lr, "min_lr" + range, o.min_lr);
    check(o.init_lr >= 0 && o.init_lr <= largest_lr, "init_lr" + range, o.init_lr);
    check(o.lr_decay_steps > 0, "lr_decay_steps must be positive", o.lr_decay_steps);
    check(o.lr_warmup_steps >= 0 && o.lr_warmup_steps < o.lr_decay_steps,
          str("lr_warmup_steps must be at least 0 and less than lr_decay_steps ", o.lr_decay_steps),
          o.lr_warmup_steps);
    check(o.increment > 0, "increment must be positive", o.increment);
    if (o.lr_decay == LrDecay::wsd)
        check(o.wsd_decay_steps > 0 && o.wsd_decay_steps <= o.lr_decay_steps,
              str("wsd_decay_steps must be positive and at most lr_decay_steps ", o.lr_decay_steps),
              o.wsd_decay_steps);
    if (o.start_weight_decay.has_value() != o.end_weight_decay.has_value())
        throw ValueError(
            str(kName, ": start_weight_decay and end_weight_decay must be set together: only ",
                sets_weight_decay_ ? "start" : "end", "_weight_decay is set"));
    if (sets_weight_decay_) {
        check(start_weight_decay_ >= 0, "start_weight_decay must be at least 0",
              start_weight_decay_);
        check(end_weight_decay_ >= start_weight_decay_,
              str("end_weight_decay must be at least start_weight_decay ", start_weight_decay_),
              end_weight_decay_);
        if (o.weight_decay_increase == WeightDecayIncrease::constant)
            check(start_weight_decay_ == end_weight_decay_,
                  str("end_weight_decay must be start_weight_decay ", start_weight_decay_,
                      " if weight_decay_increase is constant"),
                  end_weight_decay_);
        else
            check(o.weight_decay_steps > 0, "weight_decay_steps must be positive",
                  o.weight_decay_steps);
    }
    double largest = 0;
    for (const GroupRef group : optimizer.param_groups()) {
        weight_decay_shares_.push_back(group.weight_decay);
        largest = std::max(largest, group.weight_decay);
    }
    for (double& share : weight_decay_shares_) share = largest > 0 ? share / largest : 1;
    start();
}

bool OptimizerParamScheduler::can_look_ahead() const {
    return start_weight_decay_ == end_weight_decay_;
}

void OptimizerParamScheduler::apply(std::size_t index, GroupRef group, double base_lr,
                                    std::int64_t epoch) {
    const double step = static_cast<double>(epoch) * options_.increment;
    const double max_lr = base_lrs().front();
    group.lr = max_lr > 0 ? rate_at(step, max_lr) * (base_lr / max_lr) : 0;
    if (sets_weight_decay_)
        // Groups that were added after construction get the whole weight decay.
        group.weight_decay =
            weight_decay_at(step) *
            (index < weight_decay_shares_.size() ? weight_decay_shares_[index] : 1);
}

double OptimizerParamScheduler::rate_at(double step, double max_lr) const {
    const ParamScheduleOptions& o = options_;
    if (o.lr_warmup_steps > 0 && step <= o.lr_warmup_steps)
        return o.init_lr + (max_lr - o.init_lr) * step / o.lr_warmup_steps;
    if (o.lr_decay == LrDecay::constant) return max_lr;
    if (step > o.lr_decay_steps) return o.min_lr;
    if (o.lr_decay == LrDecay::inverse_square_root)
        return std::max(o.min_lr,
                        max_lr * std::sqrt(std::max(o.lr_warmup_steps, 1.0) / std::max(step, 1.0)));
    return o.min_lr + decay_share_at(step) * (max_lr - o.min_lr);
}

// Returns the factor c of LrDecay.
double OptimizerParamScheduler::decay_share_at(double step) const {
    const ParamScheduleOptions& o = options_;
    if (o.lr_decay == LrDecay::wsd) {
        const double beyond = step - (o.lr_decay_steps - o.wsd_decay_steps);
        return beyond <= 0 ? 1 : wsd_share_at(o.wsd_decay, beyond / o.wsd_decay_steps);
    }
    const double p = (step - o.lr_warmup_steps) / (o.lr_decay_steps - o.lr_warmup_steps);
    return o.lr_decay == LrDecay::linear ? 1 - p : half_cosine(p);
}

double OptimizerParamScheduler::weight_decay_at(double step) const {
    if (start_weight_decay_ == end_weight_decay_ || step > options_.weight_decay_steps)
        return end_weight_decay_;
    const double r = step / options_.weight_decay_steps;
    const double share =
        options_.weight_decay_increase == WeightDecayIncrease::linear ? r : half_cosine(1 - r);
    return start_weight_decay_ + share * (end_weight_decay_ - start_weight_decay_);
}

std::vector<ScheduleField> OptimizerParamScheduler::fields() {
    ParamScheduleOptions& o = options_;
    return {{"init_lr", &o.init_lr},
            {"min_lr", &o.min_lr},
            {"lr_warmup_steps", &o.lr_warmup_steps},
            {"lr_decay_steps", &o.lr_decay_steps},
            {"lr_decay_style", choice(o.lr_decay, kLrDecays)},
            {"wsd_decay_steps", &o.wsd_decay_steps},
            {"lr_wsd_decay_style", choice(o.wsd_decay, kWsdDecays)},
            {"start_wd", &start_weight_decay_},
            {"end_wd", &end_weight_decay_},
            {"wd_incr_steps", &o.weight_decay_steps},
            {"wd_incr_style", choice(o.weight_decay_increase, kIncreases)},
            {"increment", &o.increment}};
}

}  // namespace axle::optim
