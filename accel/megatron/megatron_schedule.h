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
    // The number of samples of an update, or nullopt if no loader with a batch size is known.
    std::optional<std::int64_t> samples_per_update = {};
    // The numbers of the placeholder, which are divided by `replicas`.
    std::optional<std::int64_t> total_num_steps = {};
    std::int64_t warmup_num_steps = 0;
};

// Throws ValueError for invalid values, and if two options set the same value or use different
// units. Throws NotImplementedError for entries of other_megatron_args that Axle does not read.
void check_schedule_options(const MegatronLMPlugin& plugin);

// Returns an optim::OptimizerParamScheduler that advances by one step per update and counts
// samples, or updates if samples_per_update is unknown. As in Accelerate, the numbers of the
// placeholder are used if the plugin has no train_iters; they replace train_samples with a warning.
// Throws ValueError if the length of the run is unknown, if samples are counted without
// samples_per_update, or if the style of the weight decay needs start_weight_decay and
// end_weight_decay. Also throws the errors of OptimizerParamScheduler. The optimizer must outlive
// the schedule.
std::unique_ptr<optim::Scheduler> make_megatron_schedule(const MegatronLMPlugin& plugin,
                                                         optim::Optimizer& optimizer,
                                                         const MegatronRunSizes& sizes);

}  // namespace axle::accel
