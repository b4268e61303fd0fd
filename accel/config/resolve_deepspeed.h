// Private to accel: resolves and checks DeepSpeed plugins.
#pragma once

#include "accel/config/options.h"

namespace axle::accel {

// Adds a plugin if ACCELERATE_USE_DEEPSPEED is true and none is given. Resolves all DeepSpeed
// plugins, and sets the precision, the number of micro-batches per update and, for fp16,
// grad_scaler_kwargs (unless they are given) of the options to the values of the active plugin.
// Throws UsageError if two options contradict each other, ValueError for invalid values or a
// contradictory precision, and NotImplementedError for a constant loss scale. Also throws the
// errors of resolve(DeepSpeedPlugin&).
void resolve_deepspeed(AcceleratorOptions& options);
// Throws NotImplementedError for options that Axle does not implement, and ValueError for options
// of stage 3 in another stage. Logs a warning that lists options of the configuration that have no
// effect.
void check_deepspeed(const DeepSpeedPlugin& plugin);

}  // namespace axle::accel
