// Private to accel: resolves the options of FSDP, maps them to the options of the sharding engine,
// and converts the dtypes of models as these options require.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "accel/config/options.h"
#include "core/device.h"
#include "dist/group/process_group.h"
#include "dist/sharding/sharding_options.h"
#include "nn/module.h"

namespace axle::accel {

// Returns the element of `names` that is equal to `text`, ignoring case. If has_numbers is true,
// `text` may also be the number of an element, as in Accelerate. Throws ValueError, with a message
// that begins with `option`, if no element matches.
std::string fsdp_name(const std::string& option, const std::string& text,
                      const std::vector<std::string>& names, bool has_numbers = true);

// Adds an FSDP plugin if ACCELERATE_USE_FSDP is true, and sets the options that the plugin does not
// set. Throws ValueError for invalid options, and logs warnings for options without effect.
void resolve_fsdp(AcceleratorOptions& options);

// Returns the sharding options of a model for a resolved plugin. `device` is the device of the
// sharded parameters. `replicas` are the processes with the same part of the parameters, or
// nullptr. Throws UsageError for the strategy NO_SHARD. Throws ValueError if the model has no
// module of a given type, or the regular expression of ignored_modules is invalid.
dist::ShardingOptions sharding_options_of(FullyShardedDataParallelPlugin plugin, nn::Module& model,
                                          Device device = Device::cpu(),
                                          std::shared_ptr<dist::ProcessGroup> replicas = nullptr);

// Converts the floating buffers of a model to buffer_dtype of the plugin, if it is set, as version
// 1 of FSDP does. Buffers of BatchNorm and of ignored modules keep their dtype.
void convert_buffers(const FullyShardedDataParallelPlugin& plugin, nn::Module& model);

// Converts trained parameters in f16 and bf16 to f32, because optimizers update them in f32. Logs a
// warning with their number. Call it before the model is sharded if mixed_precision is on.
void upcast_trained_parameters(nn::Module& model);

}  // namespace axle::accel
