// Gathers the states of models that are sharded or divided (dist/tensor_parallel/), and of their
// optimizers, as complete tensors for checkpoints (FULL_STATE_DICT of FSDP).
//
// All ranks must call these functions together. They gather one unit or slice at a time.
// Module::load_state_dict() and Optimizer::load_state_dict() load complete states into sharded
// objects without communication: each rank copies its part.
#pragma once

#include <map>
#include <string>

#include "core/tree/tree.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace axle::dist {

struct FullStateOptions {
    // Whether only the first rank of the parameters' group gets tensors.
    bool rank0_only = true;
    bool offload_to_cpu = true;  // whether the tensors are copied to the CPU
};

// Returns whether at least one parameter of the model is sharded.
bool is_sharded(const nn::Module& model);

// Returns whether at least one parameter of the model is a slice of a larger tensor
// (core/autograd/tensor_slice.h).
bool has_slices(const nn::Module& model);

// Returns model.saved_state() with all elements of the parameters, in the dtypes from before
// sharding. Tensors that are neither sharded nor slices are returned unchanged. Ranks without
// tensors (see rank0_only) get an empty list.
nn::StateDict full_state_dict(const nn::Module& model, FullStateOptions options = {});

// Returns optimizer.state_dict() with buffers in the shape of the whole parameters. Ranks without
// tensors get the groups and an empty state.
Tree full_state_dict(optim::Optimizer& optimizer, FullStateOptions options = {});
// Does the same with `own`, the result of optimizer.state_dict(). The caller can thus report an
// error of state_dict() to the other ranks first.
Tree full_state_dict(optim::Optimizer& optimizer, Tree own, FullStateOptions options);

// whole_gradients() returns the gradients that this rank has accumulated, by name, in the shapes of
// the parameters. They are the sum of pending gradients (not yet reduced) and reduced gradients.
// Every rank gets its own gradients; their mean over all ranks is the gradient of the next update.
// set_whole_gradients() restores the gradients, and removes gradients of parameters that are not in
// the map, without communication. Throws ShapeError if a gradient does not have the shape of its
// parameter.
nn::StateDict whole_gradients(const nn::Module& model);
void set_whole_gradients(const nn::Module& model, const std::map<std::string, Tensor>& gradients);

}  // namespace axle::dist
