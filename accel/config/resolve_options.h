// Private to accel: what options, environment and defaults together say. Errors as Accelerator's.
#pragma once

#include <string>

#include "accel/config/options.h"
#include "accel/loading/data_loader.h"

namespace axle::accel {

// With each kwargs handler, older spelling and variable where it belongs. Its plugins are yet to be
// checked (accel/config/resolve_plugins.h).
AcceleratorOptions resolved(AcceleratorOptions options);
// `steps`, which is at least one.
int positive_steps(const char* who, int steps);
int accumulation_steps(const AcceleratorOptions& options);
std::string precision(const AcceleratorOptions& options);
// With both directories.
ProjectConfiguration project(const AcceleratorOptions& options);
PrepareDataLoaderOptions loading(const AcceleratorOptions& options, Device device);

}  // namespace axle::accel
