// Private to accel: the options of a sharded model that a DeepSpeed plugin describes.
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

}  // namespace axle::accel
