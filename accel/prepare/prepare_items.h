// Private to accel: the steps before the objects of one prepare() call are prepared.
#pragma once

#include <vector>

#include "accel/config/deepspeed_plugin.h"
#include "accel/prepare/preparable.h"

namespace axle::accel {

// Fills the configuration of a resolved plugin from the objects (fill_deepspeed_config()), and
// creates the optimizers and schedules of placeholders that have none yet. `plugin` is null without
// DeepSpeed. With split_batches, a batch of a loader is divided among the processes. Throws the
// errors of fill_deepspeed_config(), make_optimizer() and make_scheduler(), UsageError if nothing
// can create the object of a placeholder, and ValueError if a DummyScheduler is not prepared
// together with exactly one optimizer.
void create_placeholders(DeepSpeedPlugin* plugin, const std::vector<PrepareItem>& items,
                         int num_processes, bool split_batches);

}  // namespace axle::accel
