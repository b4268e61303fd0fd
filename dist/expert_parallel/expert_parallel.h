// Expert parallel training: the processes of a group divide the experts of nn::MixtureOfExperts.
//
//     dist::expert_parallelize(model, group);           // each rank keeps a part of the experts
//     dist::DataParallel replicas(model, group);        // ranks read different batches
//     optim::AdamW optimizer(model.parameters());
//
// Each rank routes the tokens of its own batch and sends each token to the ranks that have its
// experts. These ranks send the results back. The losses and gradients are the same as in data
// parallel training in which every rank has all experts: gradients are means over the ranks.
//
// The stacks of the experts' matrices stay the same objects and become slices
// (core/autograd/tensor_slice.h): states are loaded and saved as whole tensors, and norms for
// clipping include the experts of all ranks.
#pragma once

#include <memory>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// Divides the experts of all MixtureOfExperts in the model among the ranks of the group, which must
// all call this function. All ranks get the values of rank 0. `replicas` contains the ranks with
// the same experts for other batches, or is null; gradients of experts are averaged over them too.
// Then use DataParallel over all of these ranks for the other parameters.
//
// Throws on all ranks: ValueError if the model has no MixtureOfExperts, if the number of experts is
// not a multiple of the size of the group, or if the ranks have different models; UsageError if the
// experts have a policy or a gradient, or are divided or sharded already.
void expert_parallelize(nn::Module& model, const std::shared_ptr<ProcessGroup>& group,
                        const std::shared_ptr<ProcessGroup>& replicas = {});

}  // namespace axle::dist
