// Private to accel: reads the states of models and optimizers that Accelerate writes with FSDP.
// SHARDED_STATE_DICT writes distributed checkpoints (core/files/distributed_checkpoint.h), and
// FULL_STATE_DICT writes files with complete states.
#pragma once

#include <string>

#include "core/tree/tree.h"
#include "nn/module.h"

namespace axle::accel {

// Returns the weights in a checkpoint of {"model": model.state_dict()}. Each tensor is assembled
// from its chunks and has the same name as in the model. Throws FileError if the folder is not a
// valid checkpoint.
nn::StateDict read_distributed_weights(const std::string& folder);

// Returns the optimizer state in a checkpoint of {"optimizer": {"state": ..., "param_groups":
// ...}}, in the form of Optimizer::load_state_dict(). The checkpoint identifies parameters by name;
// the result identifies them by numbers in the order of the groups. Throws FileError if the folder
// is not a valid checkpoint, or if it has other contents.
Tree read_distributed_optimizer(const std::string& folder);

// Returns the state of an optimizer in the form of Optimizer::load_state_dict(). FSDP identifies
// parameters by name; the names are replaced by numbers in the order of the groups. A state with
// numbers is returned unchanged. Throws FileError with `path` if `saved` is not the state of an
// optimizer.
Tree with_parameter_numbers(const std::string& path, const Tree& saved);

}  // namespace axle::accel
