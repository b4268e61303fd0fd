// Private to accel: resolves options, environment variables and defaults. Errors are worded as in
// Accelerate.
#pragma once

#include <string>

#include "accel/config/options.h"
#include "accel/loading/data_loader.h"

namespace axle::accel {

// Returns the options with kwargs handlers, deprecated spellings and environment variables moved to
// their fields. Does not check plugins (accel/config/resolve_plugins.h).
AcceleratorOptions resolved(AcceleratorOptions options);
// Returns `steps`. Throws ValueError if it is less than 1.
int positive_steps(const char* who, int steps);
int accumulation_steps(const AcceleratorOptions& options);
std::string precision(const AcceleratorOptions& options);
// Returns the project configuration with both directories. Throws UsageError if options contradict
// each other, ValueError if one is invalid.
ProjectConfiguration project(const AcceleratorOptions& options);
PrepareDataLoaderOptions loading(const AcceleratorOptions& options, Device device);

}  // namespace axle::accel
