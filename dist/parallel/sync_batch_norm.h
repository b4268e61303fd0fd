// Batch normalization with the statistics of all processes' batches, as torch.nn.SyncBatchNorm.
#pragma once

#include <memory>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// Makes every nn::BatchNorm in the module use the statistics over the batches of all ranks in
// training mode, both for normalization and for its running statistics. Batch sizes may differ
// between ranks. Returns the number of converted layers.
//
// Every rank must run the same layers in the same order, relative to the other collectives of the
// group. Use a separate group (group->new_group) so that the layers do not wait for gradient
// reductions.
int convert_sync_batchnorm(nn::Module& module, const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::dist
