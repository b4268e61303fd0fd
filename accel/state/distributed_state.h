// Private to accel: reads the states of a model and of an optimizer from the distributed
// checkpoints that Accelerate writes for SHARDED_STATE_DICT of FSDP
// (core/files/distributed_checkpoint.h).
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
// ...}}, in the form of Optimizer::load_state_dict(). The checkpoint has the model's names for
// parameters, and the result has numbers in the order of the groups. Throws FileError if the folder
// is not a valid checkpoint, or if it has other contents.
Tree read_distributed_optimizer(const std::string& folder);

}  // namespace axle::accel
