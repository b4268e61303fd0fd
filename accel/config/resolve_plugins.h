// Private to accel: which of the engines that options or the environment ask for there are.
#pragma once

#include <memory>

#include "accel/config/options.h"

namespace axle::accel {

// Adds what the environment asks for; a deprecated plugin becomes what has replaced it. UsageError
// where two options ask for the same thing, ValueError for what is out of its range or set.
void read_plugins(AcceleratorOptions& options);
// ValueError for sizes that are not those of so many processes, NotImplementedError for an engine
// that isn't there.
void check_plugins(const AcceleratorOptions& options, int num_processes);
// What a backend of dynamo comes to here, on the log.
void explain_dynamo(const AcceleratorOptions& options);
// Of parallelism_config's dimensions that are larger than one; else device_mesh. Everybody of the
// group calls it.
std::shared_ptr<const dist::DeviceMesh> mesh_of(const AcceleratorOptions& options,
                                                const std::shared_ptr<dist::ProcessGroup>& group);

}  // namespace axle::accel
