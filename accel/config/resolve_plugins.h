// Private to accel: resolves and checks plugins.
#pragma once

#include <memory>

#include "accel/config/options.h"

namespace axle::accel {

// Adds plugins that environment variables request, and replaces deprecated plugins. Throws
// UsageError if two options contradict each other, ValueError for invalid values.
void read_plugins(AcceleratorOptions& options);
// Throws ValueError if sizes do not match the number of processes, NotImplementedError for an
// engine that Axle lacks.
void check_plugins(const AcceleratorOptions& options, int num_processes);
// Logs that a dynamo backend does not compile models.
void explain_dynamo(const AcceleratorOptions& options);
// Returns a mesh of parallelism_config's dimensions that are larger than 1 (nullptr if there is
// none); without a parallelism_config, returns device_mesh. All processes of the group must call
// it.
std::shared_ptr<const dist::DeviceMesh> mesh_of(const AcceleratorOptions& options,
                                                const std::shared_ptr<dist::ProcessGroup>& group);

}  // namespace axle::accel
