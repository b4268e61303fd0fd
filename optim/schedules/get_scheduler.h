// The schedules of Transformers, and get_scheduler(), which creates one by name. t is the epoch and
// lr0 a group's initial rate. During warmup the rate is lr0 * t / warmup_steps. The formulas below
// apply after it, with p = (t - warmup_steps) / (training_steps - warmup_steps). Invalid numbers
// throw ValueError.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "optim/schedules/scheduler.h"

namespace axle::optim {

// Keeps the rate at lr0.
LambdaLR get_constant_schedule(Optimizer& optimizer);
// Keeps the rate at lr0 after the warmup.
LambdaLR get_constant_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps);
// Decays linearly after the warmup, at the rate lr0 max(0, 1 - p).
LambdaLR get_linear_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps);
// Decays as a cosine, at the rate lr0 max(0, r + (1 - r) (1 + cos(2 pi cycles p)) / 2) with r =
// min_lr_ratio. With half a cycle the rate falls from lr0 to r lr0; after training_steps it rises
// again with the cosine.
LambdaLR get_cosine_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps, double cycles = 0.5,
                                         double min_lr_ratio = 0);
// Decays from lr0 to 0 as a cosine in each cycle. After the last cycle the rate is 0.
LambdaLR get_cosine_with_hard_restarts_schedule_with_warmup(Optimizer& optimizer,
                                                            std::int64_t warmup_steps,
                                                            std::int64_t training_steps,
                                                            double cycles = 1);
// Decays from lr0 to lr_end as (1 - p)^power, then stays at lr_end. All groups use the ratio of the
// first group, whose rate must be above lr_end.
LambdaLR get_polynomial_decay_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                                   std::int64_t training_steps,
                                                   double lr_end = 1e-7, double power = 1);
// Sets the rate to lr0 / sqrt((t + timescale - warmup_steps) / timescale). timescale defaults to
// warmup_steps, or 10000 without warmup.
LambdaLR get_inverse_sqrt_schedule(Optimizer& optimizer, std::int64_t warmup_steps,
                                   std::optional<std::int64_t> timescale = {});

// The final rate of a cosine. Set exactly one of the two.
struct MinLr {
    std::optional<double> min_lr = {};       // absolute, for the first group
    std::optional<double> min_lr_rate = {};  // relative to each group's rate
};

// Equivalent to get_cosine_schedule_with_warmup with this minimum.
LambdaLR get_cosine_with_min_lr_schedule_with_warmup(Optimizer& optimizer,
                                                     std::int64_t warmup_steps,
                                                     std::int64_t training_steps, MinLr end,
                                                     double cycles = 0.5);
// Like the function above, but one step ahead. The warmup starts at lr0 / warmup_steps, and the
// cosine starts one step after lr0. With warmup_lr_rate the warmup goes from lr0 * warmup_lr_rate
// to lr0.
LambdaLR get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
    Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t training_steps, MinLr end,
    double cycles = 0.5, std::optional<double> warmup_lr_rate = {});

enum class WsdShape : std::uint8_t { linear, cosine, one_minus_sqrt };

struct WsdOptions {
    // Set at least one of the two; stable_steps takes precedence. By default the stable phase is
    // the rest of training_steps after warmup and decay.
    std::optional<std::int64_t> training_steps = {}, stable_steps = {};
    WsdShape warmup_type = WsdShape::linear;
    WsdShape decay_type = WsdShape::cosine;
    double min_lr_ratio = 0;
    double cycles = 0.5;  // number of cycles of a cosine decay
};

// Raises the rate from min_lr_ratio * lr0 to lr0 (warmup), keeps it constant (stable) and lowers it
// to min_lr_ratio * lr0 (decay).
LambdaLR get_wsd_schedule(Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t decay_steps,
                          const WsdOptions& options);

// Returns "linear", "cosine", ... in Transformers' order.
std::vector<std::string> scheduler_names();

// Creates a schedule by its name in Transformers. scheduler_specific_kwargs uses Transformers'
// option names. Throws ValueError if the name or an option is unknown, or a required number is
// missing:
//
//     get_scheduler("cosine_with_min_lr", adamw, 100, 2000, {{"min_lr", 1e-5}})
std::unique_ptr<Scheduler> get_scheduler(std::string_view name, Optimizer& optimizer,
                                         std::optional<std::int64_t> num_warmup_steps = {},
                                         std::optional<std::int64_t> num_training_steps = {},
                                         const Tree& scheduler_specific_kwargs = {});

}  // namespace axle::optim
