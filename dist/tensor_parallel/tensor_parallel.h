// Tensor parallel training: the processes of a group divide the weights of each layer.
//
//     dist::tensor_parallelize(gpt, group);            // each rank keeps its slices of the weights
//     optim::AdamW optimizer(gpt.parameters());        // also possible before
//     gpt.loss(ids, labels).backward();                // all ranks pass the same ids and labels
//     optimizer.step();
//
// The design follows Shoeybi et al., "Megatron-LM" (arXiv:1909.08053). Sequence parallelism follows
// Korthikanti et al., "Reducing activation recomputation in large transformer models"
// (arXiv:2205.05198).
//
// The tensors of the model stay the same objects and are ordinary parameters with the shapes of
// their slices (core/autograd/tensor_slice.h). Losses, and the gradients of tensors that are not
// divided, are equal on all ranks. Module::load_state_dict() takes whole tensors, and
// full_state_dict() (dist/sharding/full_state.h) returns them. Norms for clipping include the
// gradients of all ranks. A clone of a divided model has the same slices. Module::state_dict() of a
// divided model returns slices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// A rule of a plan. It selects modules by their names and specifies how they are divided.
struct TensorParallelRule {
    // The name of a module, or "regex:" and a regular expression. In a name, * stands
    // for one or more characters other than a dot, as in "model.layers.*.mlp.up_proj".
    std::string modules;
    // The style, which specifies how the modules are divided:
    // - "colwise": a Linear computes a part of its output features, from the whole input;
    // - "rowwise": a Linear computes from a part of its input features; the results are added;
    // - "colwise_rep": as colwise, but the result is gathered. An output layer ("lm_head") also has
    //   this style; its loss is computed without gathering logits;
    // - "embedding_rowwise": an Embedding has a part of the rows;
    // - "sequence_parallel": a LayerNorm, RMSNorm, Dropout or stack of blocks processes a part of
    //   the sequence. Ignored unless TensorParallelOptions::sequence_parallel is true;
    // - "replicate": the module is not divided.
    std::string style;
    // The number of equal parts in the output of a fused projection, such as 3 for queries, keys
    // and values. Each part is divided.
    std::int64_t segments = 1;
};

// A list of rules. If several rules match a module, the first of these rules applies.
using TensorParallelPlan = std::vector<TensorParallelRule>;

struct TensorParallelOptions {
    TensorParallelPlan plan = {};  // if empty, tensor_parallel_plan(model)
    // Whether norms and dropout between the divided layers process parts of the sequence. Saves
    // memory without changing results. The length of the sequence must be a multiple of the number
    // of ranks.
    bool sequence_parallel = false;
    // Whether all ranks get the values of rank 0 before the tensors are divided.
    bool sync_module_states = true;
};

// Returns the plan of a Gpt, Llama or BERT model (nn/models), or an empty plan for other modules.
TensorParallelPlan tensor_parallel_plan(nn::Module& model);

// Divides a model among the ranks of the group. In a group of one process, only checks the
// arguments. All ranks must call this function. Weights on the meta device are divided without
// memory; loading the model then reads only the slices (nn::load_pretrained()). Optimizers of the
// model stay valid if they have no state yet.
//
// Errors are thrown on all ranks, before the model is changed. Throws ValueError
// - if the model has no plan, or sequence_parallel is true and the plan lacks a rule for it,
// - if a rule is invalid (for example its style), or selects no module or a module of the wrong
//   type,
// - if heads, features, key-value heads or an embedding can't be divided,
// - if a tied weight is divided for only one of its modules, or in two different ways, or
// - if the ranks have different plans or models.
//
// Throws UsageError if a selected module already has a policy, or if a weight is sharded, is
// already divided or has a gradient.
void tensor_parallelize(nn::Module& model, const std::shared_ptr<ProcessGroup>& group,
                        const TensorParallelOptions& options = {});

// Ends the division of a model by tensor_parallelize() or expert_parallelize(), for example to use
// it after training. All ranks then have whole parameters without gradients. All ranks must call
// this function. The states of optimizers stay divided, so save them before the call. A model that
// is not divided is not changed. Throws UsageError if slices are sharded over processes; call
// unshard() first.
void join_slices(nn::Module& model);

}  // namespace axle::dist
