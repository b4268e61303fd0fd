// BatchNorm by the statistics of all processes' batches, as torch.nn.SyncBatchNorm.
#pragma once

#include <memory>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::inline v0::dist {

// Every nn::BatchNorm in the module takes, in training, the statistics of all ranks' batches, whose
// sizes may differ, and moves its running statistics by them. Returns how many there are.
//
// Every rank runs the same layers forward and backward, in the same order among the other
// collectives of the group. Give it a group of its own (group->new_group) where reductions of
// gradients shouldn't hold it up.
int convert_sync_batchnorm(nn::Module& module, const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::inline v0::dist
