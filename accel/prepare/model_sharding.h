// Private to accel: chooses how prepare() shards models, from the plugins of an Accelerator.
#pragma once

#include <string>

#include "accel/config/options.h"
#include "accel/prepare/preparation.h"
#include "accel/process/partial_state.h"

namespace axle::accel {

// Sets the options of `preparation` that decide how models and optimizers are sharded, clipped and
// offloaded. The plugins of `options` must be resolved; `mixed_precision` is the resolved
// precision. `options` and `processes` must outlive `preparation` and its copies. The sharding of a
// model then throws ValueError if a HYBRID_ strategy shards within machines that have different
// numbers of processes.
void set_sharding(PreparationOptions& preparation, const AcceleratorOptions& options,
                  const PartialState& processes, const std::string& mixed_precision);

}  // namespace axle::accel
