// The schedules of Transformers as functions of the epoch.
#include <algorithm>
#include <cmath>

#include "optim/schedules/get_scheduler.h"
#include "optim/schedules/schedule_checks.h"

namespace axle::optim {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
}

void check_steps(const char* op, const char* what, std::int64_t steps) {
    if (steps < 0) throw ValueError(str(op, ": ", what, " must not be negative: ", steps));
}

// Returns a factor function: t / warmup during warmup, then after(t - warmup, training - warmup).
// Throws ValueError if warmup or training is negative.
template <class After>
LambdaLR::Factor with_warmup(const char* op, std::int64_t warmup, std::int64_t training,
                             After after) {
    check_steps(op, "warmup_steps", warmup);
    check_steps(op, "training_steps", training);
    return [=](std::int64_t t) -> double {
        if (t < warmup) return ratio(t, warmup);
        return after(t - warmup, training - warmup);
    };
}

// Returns a cosine that falls from 1 to min_ratio and rises again. It has `cycles` periods while
// progress grows from 0 to 1.
double cosine_to(double min_ratio, double cycles, double progress) {
    const double factor = 0.5 * (1 + std::cos(kPi * cycles * 2 * progress));
    return std::max(0.0, factor * (1 - min_ratio) + min_ratio);
}

// Returns the initial rate of the first group. Transformers uses the default rate of the optimizer
// instead.
double first_lr(Optimizer& optimizer) {
    const GroupRef group = optimizer.param_groups()[0];
    return group.initial_lr.value_or(group.lr);
}

double min_ratio_of(const char* op, Optimizer& optimizer, const MinLr& end) {
    if (end.min_lr && end.min_lr_rate)
        throw ValueError(str(op, ": min_lr and min_lr_rate cannot be combined: min_lr ",
                             *end.min_lr, ", min_lr_rate ", *end.min_lr_rate));
    if (end.min_lr_rate) return *end.min_lr_rate;
    if (!end.min_lr)
        throw ValueError(
            str(op, ": one of min_lr and min_lr_rate must be given: neither is given"));
    const double lr = first_lr(optimizer);
    return lr == 0 ? 0 : *end.min_lr / lr;
}

double warmup_factor(WsdShape shape, double progress) {
    switch (shape) {
        case WsdShape::linear:
            return progress;
        case WsdShape::cosine:
            return 0.5 * (1 - std::cos(kPi * progress));
        case WsdShape::one_minus_sqrt:
            break;
    }
    return 1 - std::sqrt(1 - progress);
}

double decay_factor(WsdShape shape, double cycles, double progress) {
    switch (shape) {
        case WsdShape::linear:
            return 1 - progress;
        case WsdShape::cosine:
            return 0.5 * (1 + std::cos(kPi * cycles * 2 * progress));
        case WsdShape::one_minus_sqrt:
            break;
    }
    return 1 - std::sqrt(progress);
}

}  // namespace

LambdaLR get_constant_schedule(Optimizer& optimizer) {
    return LambdaLR(optimizer, [](std::int64_t) { return 1.0; });
}

LambdaLR get_constant_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps) {
    const auto one = [](std::int64_t, std::int64_t) { return 1.0; };
    return LambdaLR(optimizer,
                    with_warmup("get_constant_schedule_with_warmup", warmup_steps, 0, one));
}

LambdaLR get_linear_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps) {
    const auto fall = [](std::int64_t t, std::int64_t n) { return std::max(0.0, ratio(n - t, n)); };
    return LambdaLR(optimizer, with_warmup("get_linear_schedule_with_warmup", warmup_steps,
                                           training_steps, fall));
}

LambdaLR get_cosine_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps, double cycles,
                                         double min_lr_ratio) {
    const auto fall = [=](std::int64_t t, std::int64_t n) {
        return cosine_to(min_lr_ratio, cycles, ratio(t, n));
    };
    return LambdaLR(optimizer, with_warmup("get_cosine_schedule_with_warmup", warmup_steps,
                                           training_steps, fall));
}

LambdaLR get_cosine_with_hard_restarts_schedule_with_warmup(Optimizer& optimizer,
                                                            std::int64_t warmup_steps,
                                                            std::int64_t training_steps,
                                                            double cycles) {
    const auto fall = [=](std::int64_t t, std::int64_t n) {
        const double progress = ratio(t, n);
        if (progress >= 1) return 0.0;
        return std::max(0.0, 0.5 * (1 + std::cos(kPi * std::fmod(cycles * progress, 1.0))));
    };
    return LambdaLR(optimizer, with_warmup("get_cosine_with_hard_restarts_schedule_with_warmup",
                                           warmup_steps, training_steps, fall));
}

LambdaLR get_polynomial_decay_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                                   std::int64_t training_steps, double lr_end,
                                                   double power) {
    constexpr const char* kOp = "get_polynomial_decay_schedule_with_warmup";
    const double lr = first_lr(optimizer);
    if (!(lr > lr_end))
        throw ValueError(str(kOp, ": lr_end must be below the initial rate ", lr, ": ", lr_end));
    const auto fall = [=](std::int64_t t, std::int64_t n) {
        if (t > n || n == 0) return lr_end / lr;
        const double left = 1 - static_cast<double>(t) / static_cast<double>(n);
        return ((lr - lr_end) * std::pow(left, power) + lr_end) / lr;
    };
    return LambdaLR(optimizer, with_warmup(kOp, warmup_steps, training_steps, fall));
}

LambdaLR get_inverse_sqrt_schedule(Optimizer& optimizer, std::int64_t warmup_steps,
                                   std::optional<std::int64_t> timescale) {
    constexpr const char* kOp = "get_inverse_sqrt_schedule";
    check_steps(kOp, "warmup_steps", warmup_steps);
    const std::int64_t scale =
        positive(kOp, "timescale", timescale.value_or(warmup_steps != 0 ? warmup_steps : 10'000));
    const auto fall = [=](std::int64_t t, std::int64_t) {
        return 1 / std::sqrt(static_cast<double>(t + scale) / static_cast<double>(scale));
    };
    return LambdaLR(optimizer, with_warmup(kOp, warmup_steps, 0, fall));
}

LambdaLR get_cosine_with_min_lr_schedule_with_warmup(Optimizer& optimizer,
                                                     std::int64_t warmup_steps,
                                                     std::int64_t training_steps, MinLr end,
                                                     double cycles) {
    const double min_ratio =
        min_ratio_of("get_cosine_with_min_lr_schedule_with_warmup", optimizer, end);
    return get_cosine_schedule_with_warmup(optimizer, warmup_steps, training_steps, cycles,
                                           min_ratio);
}

LambdaLR get_cosine_with_min_lr_schedule_with_warmup_lr_rate(Optimizer& optimizer,
                                                             std::int64_t warmup_steps,
                                                             std::int64_t training_steps, MinLr end,
                                                             double cycles,
                                                             std::optional<double> warmup_lr_rate) {
    constexpr const char* kOp = "get_cosine_with_min_lr_schedule_with_warmup_lr_rate";
    check_steps(kOp, "warmup_steps", warmup_steps);
    check_steps(kOp, "training_steps", training_steps);
    const double min_ratio = min_ratio_of(kOp, optimizer, end);
    return LambdaLR(optimizer, [=](std::int64_t t) -> double {
        if (t >= warmup_steps)
            return cosine_to(min_ratio, cycles,
                             ratio(t - warmup_steps + 1, training_steps - warmup_steps));
        if (!warmup_lr_rate) return ratio(t + 1, warmup_steps);
        const auto steps = static_cast<double>(std::max<std::int64_t>(1, warmup_steps - 1));
        return *warmup_lr_rate + (1 - *warmup_lr_rate) * static_cast<double>(t) / steps;
    });
}

LambdaLR get_wsd_schedule(Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t decay_steps,
                          const WsdOptions& options) {
    constexpr const char* kOp = "get_wsd_schedule";
    if (!options.training_steps && !options.stable_steps)
        throw ValueError(
            str(kOp, ": training_steps or stable_steps must be given: neither is given"));
    check_steps(kOp, "warmup_steps", warmup_steps);
    check_steps(kOp, "decay_steps", decay_steps);
    check_steps(kOp, "training_steps", options.training_steps.value_or(0));
    check_steps(kOp, "stable_steps", options.stable_steps.value_or(0));
    const std::int64_t stable = options.stable_steps
                                    ? *options.stable_steps
                                    : *options.training_steps - warmup_steps - decay_steps;
    return LambdaLR(optimizer, [=, o = options](std::int64_t t) -> double {
        const auto above_min = [&](double factor) {
            return std::max(0.0, factor * (1 - o.min_lr_ratio) + o.min_lr_ratio);
        };
        if (t < warmup_steps)
            return above_min(warmup_factor(o.warmup_type, ratio(t, warmup_steps)));
        t -= warmup_steps;
        if (t < stable) return 1;
        t -= stable;
        if (t < decay_steps)
            return above_min(decay_factor(o.decay_type, o.cycles, ratio(t, decay_steps)));
        return o.min_lr_ratio;
    });
}

}  // namespace axle::optim
