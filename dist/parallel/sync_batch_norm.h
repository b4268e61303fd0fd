// Batch normalization with statistics over the batches of all processes (torch.nn.SyncBatchNorm).
#pragma once

#include <memory>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// Converts all nn::BatchNorm layers in the module and returns their number. In training mode,
// converted layers normalize with the mean and variance over the batches of all ranks. These values
// also update the running statistics. Batch sizes may differ between ranks. In training mode, a
// converted layer throws ShapeError if all ranks together have at most one value per channel.
// Gradients cannot be differentiated again (UsageError).
//
// All ranks must run the same layers and other collectives of the group in the same order. Use a
// separate group (ProcessGroup::new_group()), so that the layers do not wait for reductions of
// gradients.
int convert_sync_batchnorm(nn::Module& module, const std::shared_ptr<ProcessGroup>& group);

}  // namespace axle::dist
