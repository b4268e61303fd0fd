// Private to accel: resolves options, environment variables and defaults. Accepts the same values
// as Accelerate.
#pragma once

#include <string>

#include "accel/config/options.h"
#include "accel/loading/data_loader.h"

namespace axle::accel {

// Returns the options after setting their fields from kwargs handlers, deprecated options and
// environment variables. check_plugins() then checks the plugins for a number of processes
// (accel/config/resolve_plugins.h). Throws UsageError if two options contradict each other,
// ValueError for invalid values, and NotImplementedError for options that Axle does not implement.
AcceleratorOptions resolved(AcceleratorOptions options);
// Returns `steps`. Throws ValueError, with a message that begins with `option`, if `steps` is less
// than 1.
int positive_steps(const char* option, int steps);
// Returns the number of micro-batches per update. Throws ValueError if it is less than 1 or the
// environment variable is not an integer, and UsageError for options that contradict each other.
// Messages call the option gradient_accumulation_steps `option`.
int accumulation_steps(const AcceleratorOptions& options,
                       const char* option = "Accelerator: gradient_accumulation_steps");
// Returns "no", "fp16", "bf16" or "fp8". Throws ValueError for other values of the option or the
// environment variable.
std::string precision(const AcceleratorOptions& options);
// Returns the project configuration with project_dir and logging_dir set. Throws UsageError if
// options contradict each other, and ValueError if an option is invalid.
ProjectConfiguration project(const AcceleratorOptions& options);
// Returns the options of prepared loaders. Throws UsageError if two options contradict each other,
// and ValueError for an unknown name in rng_types.
PrepareDataLoaderOptions loading(const AcceleratorOptions& options, Device device);

}  // namespace axle::accel
