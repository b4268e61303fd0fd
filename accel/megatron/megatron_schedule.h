// Private to accel: creates the schedule of a MegatronLMPlugin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "accel/megatron/megatron_plugin.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// The numbers of a run that the plugin does not contain.
struct MegatronRunSizes {
    int replicas = 1;  // the number of processes with different samples
    // The number of samples of an update; nullopt if no loader with a batch size is known.
    std::optional<std::int64_t> samples_per_update = {};
    // The numbers of the placeholder, which are divided by `replicas`.
    std::optional<std::int64_t> total_num_steps = {};
    std::int64_t warmup_num_steps = 0;
};

// Throws ValueError for invalid values, and for options in different units or of the same value
// that are given together. Throws NotImplementedError for entries of other_megatron_args that Axle
// does not read.
void check_schedule_options(const MegatronLMPlugin& plugin);

// Returns an optim::OptimizerParamScheduler that advances by one step per update and counts
// samples, or updates if samples_per_update is unknown. As in Accelerate, the numbers of the
// placeholder are used if the plugin has no train_iters, and replace train_samples with a warning.
// Throws ValueError if the length of the run is unknown, if samples are counted without
// samples_per_update, for a style of the weight decay that needs its two ends, and the errors of
// OptimizerParamScheduler. The optimizer must outlive the schedule.
std::unique_ptr<optim::Scheduler> make_megatron_schedule(const MegatronLMPlugin& plugin,
                                                         optim::Optimizer& optimizer,
                                                         const MegatronRunSizes& sizes);

}  // namespace axle::accel
