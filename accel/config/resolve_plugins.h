// Private to accel: resolves and checks plugins.
#pragma once

#include <memory>
#include <string>

#include "accel/config/options.h"

namespace axle::accel {

// Throws NotImplementedError for an option. `what` names the missing feature, and `fix` is what the
// user can do instead.
[[noreturn]] void throw_not_implemented(const std::string& option, const char* what,
                                        const char* fix);

// Adds the plugins that environment variables enable, and replaces deprecated plugins. Throws
// UsageError if two options contradict each other, ValueError for invalid values, and
// NotImplementedError for options that Axle does not implement.
void read_plugins(AcceleratorOptions& options);
// Throws ValueError if parallelism_config or a plugin does not match the number of processes or
// other options. Throws NotImplementedError for options that Axle does not implement.
void check_plugins(const AcceleratorOptions& options, int num_processes);
// Logs a warning if a dynamo backend is set, because Axle does not compile models.
void explain_dynamo(const AcceleratorOptions& options);

// Functions of accel/config/parallelism_config.cpp:

// Adds a ParallelismConfig if environment variables enable it, replaces deprecated options, and
// fills in the handlers of dimensions that are larger than 1. Throws UsageError if two options
// contradict each other, and ValueError for invalid values.
void read_parallelism(AcceleratorOptions& options);
// Throws ValueError if the sizes do not match the number of processes or the plugins. Throws
// NotImplementedError for a kind of parallelism that Axle does not implement.
void check_parallelism(const AcceleratorOptions& options, int num_processes);
// Returns a mesh with the dimensions of parallelism_config or megatron_lm_plugin that are larger
// than 1. If all dimensions are 1, the mesh has one dimension, dp_replicate, with all processes.
// Returns nullptr for one process. The mesh also has the flattened dimensions dp, dp_shard_cp and
// dp_cp. Without these options, returns device_mesh. All processes of the group must call this
// function.
std::shared_ptr<const dist::DeviceMesh> mesh_of(const AcceleratorOptions& options,
                                                const std::shared_ptr<dist::ProcessGroup>& group);

}  // namespace axle::accel
