// Private to accel: resolves and checks DeepSpeed plugins.
#pragma once

#include "accel/config/options.h"

namespace axle::accel {

// Adds a plugin if ACCELERATE_USE_DEEPSPEED is true and none is given, and resolves all DeepSpeed
// plugins. Then sets the precision and the number of micro-batches per update of the options to the
// values of the active plugin and, for fp16, sets grad_scaler_kwargs if they are not given. Throws
// UsageError if two options contradict each other, ValueError for invalid values or a contradictory
// precision, and NotImplementedError for a constant loss scale. Also throws the errors of
// resolve(DeepSpeedPlugin&).
void resolve_deepspeed(AcceleratorOptions& options);
// Throws NotImplementedError for options that Axle does not implement, and ValueError for options
// of stage 3 in another stage. Logs a warning that lists options of the configuration that have no
// effect.
void check_deepspeed(const DeepSpeedPlugin& plugin);

}  // namespace axle::accel
