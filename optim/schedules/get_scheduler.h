// The schedules of Transformers, and get_scheduler(), which creates a schedule by name. In the
// formulas, t is the epoch, lr0 the initial rate of a group, and p = (t - warmup_steps) /
// (training_steps - warmup_steps). During warmup the rate is lr0 * t / warmup_steps unless a
// comment states otherwise; the formulas describe the rate after the warmup. The functions throw
// ValueError if warmup_steps, training_steps, decay_steps or stable_steps is given and negative.
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
// Decays linearly after the warmup: the rate is lr0 max(0, 1 - p).
LambdaLR get_linear_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps);
// Decays as a cosine: the rate is lr0 max(0, r + (1 - r) (1 + cos(2 pi cycles p)) / 2) with r =
// min_lr_ratio. With half a cycle the rate falls from lr0 to r lr0 until training_steps, and then
// rises again.
LambdaLR get_cosine_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                         std::int64_t training_steps, double cycles = 0.5,
                                         double min_lr_ratio = 0);
// Decays from lr0 to 0 as a cosine in each cycle. From training_steps on, the rate is 0.
LambdaLR get_cosine_with_hard_restarts_schedule_with_warmup(Optimizer& optimizer,
                                                            std::int64_t warmup_steps,
                                                            std::int64_t training_steps,
                                                            double cycles = 1);
// Decays from lr0 to lr_end in proportion to (1 - p)^power, then keeps the rate at lr_end. Throws
// ValueError unless lr0 of the first group is above lr_end; all groups use the factors of the first
// group.
LambdaLR get_polynomial_decay_schedule_with_warmup(Optimizer& optimizer, std::int64_t warmup_steps,
                                                   std::int64_t training_steps,
                                                   double lr_end = 1e-7, double power = 1);
// The rate is lr0 / sqrt((t + timescale - warmup_steps) / timescale). timescale defaults to
// warmup_steps, or to 10000 if there is no warmup. Throws ValueError unless timescale is positive.
LambdaLR get_inverse_sqrt_schedule(Optimizer& optimizer, std::int64_t warmup_steps,
                                   std::optional<std::int64_t> timescale = {});

// The final rate of a cosine schedule. The schedules throw ValueError unless exactly one of the two
// options is set.
struct MinLr {
    std::optional<double> min_lr = {};       // the final rate of the first group
    std::optional<double> min_lr_rate = {};  // the final rate divided by the initial rate
};

// Equivalent to get_cosine_schedule_with_warmup with the min_lr_ratio that `end` specifies.
LambdaLR get_cosine_with_min_lr_schedule_with_warmup(Optimizer& optimizer,
                                                     std::int64_t warmup_steps,
                                                     std::int64_t training_steps, MinLr end,
                                                     double cycles = 0.5);
// Like get_cosine_with_min_lr_schedule_with_warmup, but each rate is used one step earlier: the
// warmup starts at lr0 / warmup_steps. If warmup_lr_rate is given, the warmup starts at lr0 *
// warmup_lr_rate and ends at lr0.
LambdaLR get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
    Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t training_steps, MinLr end,
    double cycles = 0.5, std::optional<double> warmup_lr_rate = {});

// How the rate changes in a phase whose progress q grows from 0 to 1. With one_minus_sqrt, the rate
// falls in proportion to 1 - sqrt(q), and rises in proportion to 1 - sqrt(1 - q).
enum class WsdShape : std::uint8_t { linear, cosine, one_minus_sqrt };

struct WsdOptions {
    // stable_steps takes precedence. If only training_steps is set, stable_steps = training_steps -
    // warmup_steps - decay_steps, which may be negative: the decay then begins at a lower rate.
    std::optional<std::int64_t> training_steps = {}, stable_steps = {};
    WsdShape warmup_type = WsdShape::linear;
    WsdShape decay_type = WsdShape::cosine;
    double min_lr_ratio = 0;
    double cycles = 0.5;  // number of cycles of a cosine decay
};

// Raises the rate from min_lr_ratio * lr0 to lr0 (warmup), keeps it constant (stable) and lowers it
// to min_lr_ratio * lr0 (decay). Throws ValueError if neither training_steps nor stable_steps is
// set.
LambdaLR get_wsd_schedule(Optimizer& optimizer, std::int64_t warmup_steps, std::int64_t decay_steps,
                          const WsdOptions& options);

// Returns the names that get_scheduler() accepts ("linear", "cosine", ...), in the order of
// Transformers.
std::vector<std::string> scheduler_names();

// Creates a schedule by its name in Transformers. scheduler_specific_kwargs is a map with
// Transformers' names of options. Throws ValueError if the name or an option is unknown, a value is
// invalid, or a required number is missing. For example:
//
//     get_scheduler("cosine_with_min_lr", adamw, 100, 2000, {{"min_lr", 1e-5}})
std::unique_ptr<Scheduler> get_scheduler(std::string_view name, Optimizer& optimizer,
                                         std::optional<std::int64_t> num_warmup_steps = {},
                                         std::optional<std::int64_t> num_training_steps = {},
                                         const Tree& scheduler_specific_kwargs = {});

}  // namespace axle::optim
