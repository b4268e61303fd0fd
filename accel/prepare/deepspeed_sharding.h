// Private to accel: computes the sharding options of a model, and the sizes of groups of processes,
// from a DeepSpeed plugin.
#pragma once

#include <optional>

#include "accel/config/deepspeed_plugin.h"
#include "core/device.h"
#include "dist/sharding/sharding_options.h"
#include "nn/module.h"

namespace axle::accel {

// Returns the options with which prepare() shards a model, or nullopt in stage 0, which does not
// shard. The plugin must be resolved and filled. Stages 1 and 2 shard the optimizer; stage 2 also
// reduces gradients in each micro-batch, so that no process keeps whole gradients. Stage 3 shards
// parameters too.
//
// Units are the modules whose types are in model.no_split_modules() or transformer_moe_cls_names.
// If both lists are empty, a module is a unit if its parameters, without the parameters of units
// inside it, have at least stage3_param_persistence_threshold elements, by default 100000. A
// stage3_prefetch_bucket_size of 0 turns prefetching off. Parameters have the dtype of fp16 or bf16
// if it is enabled, and gradients are reduced in communication_data_type, which defaults to the
// same dtype. Throws ValueError for invalid values, and for a type in transformer_moe_cls_names
// that is not in the model.
std::optional<dist::ShardingOptions> sharding_options_of(const DeepSpeedPlugin& plugin,
                                                         nn::Module& model, Device device);

// The sizes of groups of consecutive processes in stage 3.
struct DeepSpeedGroups {
    // zero_optimization.mics_shard_size (MiCS): parameters are sharded within groups of this size,
    // and gradients are averaged between the groups. If 0, parameters are sharded over all
    // processes.
    int shards = 0;
    // zero_optimization.zero_hpz_partition_size: each group of this size keeps a copy of the
    // parameters for the backward pass (hpZ of ZeRO++). If 0, there is no copy.
    int secondary = 0;
};
// Reads the sizes for `processes` processes. A mics_shard_size below 1 or a zero_hpz_partition_size
// below 2 is read as 0. Throws ValueError if another size is not an integer that divides
// `processes`, or if both sizes are given.
DeepSpeedGroups deepspeed_groups_of(const DeepSpeedConfig& config, int processes);

}  // namespace axle::accel
