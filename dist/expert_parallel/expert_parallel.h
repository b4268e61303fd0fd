// Expert parallel training: the processes of a group divide the experts of nn::MixtureOfExperts.
//
//     dist::expert_parallelize(model, group);           // each rank keeps a part of the experts
//     dist::DataParallel replicas(model, group);        // ranks read different batches
//     optim::AdamW optimizer(model.parameters());
//
// Each rank routes the tokens of its own batch and sends each token to the ranks that have its
// experts. These ranks send the results back. The losses and gradients are the same as in data
// parallel training with all experts on every rank: gradients are means over the ranks.
//
// The tensors of the experts' weights stay the same objects and become slices
// (core/autograd/tensor_slice.h). States are loaded and saved as whole tensors, and norms for
// clipping include the experts of all ranks.
#pragma once

#include <memory>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// Divides the experts of all MixtureOfExperts in the model among the ranks of the group. All ranks
// must call this function; their experts get the values of rank 0. `replicas` contains the ranks
// with the same experts and other batches, or is nullptr; gradients of experts are also averaged
// over these ranks. In a group of one process without `replicas`, only checks the arguments. After
// this call, use DataParallel over all ranks for the other parameters.
//
// Errors are thrown on all ranks. Throws ValueError if the model has no MixtureOfExperts, if the
// number of experts is not a multiple of the size of the group, or if the MixtureOfExperts of the
// ranks differ. Throws UsageError if the experts have a policy or a gradient, or are already
// divided or sharded.
void expert_parallelize(nn::Module& model, const std::shared_ptr<ProcessGroup>& group,
                        const std::shared_ptr<ProcessGroup>& replicas = {});

}  // namespace axle::dist
