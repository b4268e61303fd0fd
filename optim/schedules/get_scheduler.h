// Transformers' schedules, and all of them by name. With warmup: lr0 * t / warmup_steps until
// warmup_steps, for the initial rate lr0 at epoch t. What comes then is written for
// p = (t - warmup_steps) / (training_steps - warmup_steps). Wrong numbers throw ValueError.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "optim/schedules/scheduler.h"

namespace axle::inline v0::optim {

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
// From lr0 to 0 in each cycle, then 0
LambdaLR get_cosine_with_hard_restarts_schedule_with_warmup(Optimizer& optimizer,
                                                            std::int64_t warmup_steps,
                                                            std::int64_t training_steps,
                                                            double cycles = 1);
// From lr0 to lr_end as (1 - p)^power, then lr_end. The ratio is that of the first group, whose
// rate must be above lr_end.
LambdaLR get_polynomial_decay_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                                   std::int64_t training_steps,
                                                   double lr_end = 1e-7, double power = 1);
// lr0 / sqrt((t + timescale - warmup_steps) / timescale); timescale is warmup_steps, or 10000
// without warmup, unless given.
LambdaLR get_inverse_sqrt_schedule(Optimizer& optimizer, std::int64_t warmup_steps,
                                   std::optional<std::int64_t> timescale = {});

// The end of a cosine: one of the two must be given.
struct MinLr {
    std::optional<double> min_lr = {};       // of the first group
    std::optional<double> min_lr_rate = {};  // of each group's rate
};

// get_cosine_schedule_with_warmup with that min_lr_ratio
LambdaLR get_cosine_with_min_lr_schedule_with_warmup(Optimizer& optimizer,
                                                     std::int64_t warmup_steps,
                                                     std::int64_t training_steps, MinLr end,
                                                     double cycles = 0.5);
// The same one step ahead: the warmup begins at lr0 / warmup_steps and the cosine a step after lr0.
// With warmup_lr_rate, the warmup goes from lr0 * warmup_lr_rate to lr0.
LambdaLR get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
    Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t training_steps, MinLr end,
    double cycles = 0.5, std::optional<double> warmup_lr_rate = {});

enum class WsdShape : std::uint8_t { linear, cosine, one_minus_sqrt };

struct WsdOptions {
    // One of the two must be given, and stable_steps counts: what warmup and decay leave of
    // training_steps.
    std::optional<std::int64_t> training_steps = {}, stable_steps = {};
    WsdShape warmup_type = WsdShape::linear;
    WsdShape decay_type = WsdShape::cosine;
    double min_lr_ratio = 0;
    double cycles = 0.5;  // of a cosine decay
};

// Warmup, stable, decay: from min_lr_ratio * lr0 to lr0, lr0, and back again.
LambdaLR get_wsd_schedule(Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t decay_steps,
                          const WsdOptions& options);

// "linear", "cosine" ... in Transformers' order.
std::vector<std::string> scheduler_names();

// A schedule by Transformers' name for it: ValueError where the name is unknown, where the schedule
// needs a number that is not given, and for options that it does not have. Those have the names of
// Transformers:
//
//     get_scheduler("cosine_with_min_lr", adamw, 100, 2000, {{"min_lr", 1e-5}})
std::unique_ptr<Scheduler> get_scheduler(std::string_view name, Optimizer& optimizer,
                                         std::optional<std::int64_t> num_warmup_steps = {},
                                         std::optional<std::int64_t> num_training_steps = {},
                                         const Tree& scheduler_specific_kwargs = {});

}  // namespace axle::inline v0::optim
