// Saves and loads the states of sharded models and their optimizers. Every rank writes its part to
// a common folder (SHARDED_STATE_DICT of FSDP; core/files/sharded_folder.h). A folder can be loaded
// on any number of ranks, with other units or strategies, and without sharding.
#pragma once

#include <string>
#include <vector>

#include "core/files/sharded_folder.h"
#include "dist/group/process_group.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace axle::dist {

// The part of a state that one rank writes to a sharded folder. The tensors share memory with the
// model or the optimizer.
struct ShardedState {
    std::vector<TensorPart> parts;
    Tree extra;  // data for the index, equal on all ranks
};

// Return this rank's part of the state, without communication. `is_main` must be true on exactly
// one rank, which also stores the tensors that are not sharded. If several ranks have the same part
// (ShardingOptions::replicas), only the first of these ranks stores it.
ShardedState sharded_state(const nn::Module& model, bool is_main);
ShardedState sharded_state(optim::Optimizer& optimizer, bool is_main);

// Writes the states of all ranks of the group into an existing folder that all ranks can access.
// All ranks must call this function. Rank 0 writes the index when all other files are written. An
// error on one rank, such as FileError, is thrown on all ranks.
void save_sharded(const std::string& folder, const ShardedState& state, ProcessGroup& group,
                  Durability durability = Durability::full);

// Load a folder into a model or optimizer, sharded or not. Each rank reads its part, or the whole
// tensor of a slice. Throw FileError if the folder is invalid, and ShapeError if a shape differs.
// The function for an optimizer throws ValueError if the folder has no optimizer state, or the
// state of a parameter that the optimizer does not have, and the errors of
// Optimizer::load_state_dict(). The function for a model throws ValueError if names are missing or
// unexpected, unless `strict` is false; these names are then ignored.
void load_sharded(const ShardedFolder& folder, nn::Module& model, bool strict = true);
void load_sharded(const ShardedFolder& folder, optim::Optimizer& optimizer);
// Verify the bytes that load_sharded() would read on this rank, and change nothing. Throw the same
// errors as load_sharded(), except the errors of Optimizer::load_state_dict().
void check_sharded(const ShardedFolder& folder, const nn::Module& model, bool strict = true);
void check_sharded(const ShardedFolder& folder, optim::Optimizer& optimizer);

}  // namespace axle::dist
