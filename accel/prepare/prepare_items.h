// Private to accel: creates the optimizers and schedules of placeholders, and checks the
// optimizers, before the objects of one prepare() call are prepared.
#pragma once

#include <vector>

#include "accel/config/deepspeed_plugin.h"
#include "accel/megatron/megatron_plugin.h"
#include "accel/prepare/preparable.h"

namespace axle::accel {

// The numbers of processes and batches that placeholders depend on.
struct PlaceholderSizes {
    int num_processes = 1;  // the number of processes by which DeepSpeed divides steps
    int replicas = 1;       // the number of processes with different samples
    bool split_batches = false;
    int accumulation_steps = 1;  // the number of batches of a process in an update
};

// Fills the configuration of a resolved plugin from the objects (fill_deepspeed_config()), and
// creates the missing optimizers and schedules of placeholders. `deepspeed` and `megatron` are
// nullptr without these plugins. With split_batches, a batch of a loader is divided among the
// processes. A Megatron-LM plugin creates the schedule of a placeholder without
// lr_scheduler_callable. Throws the errors of fill_deepspeed_config(), make_optimizer(),
// make_scheduler() and make_megatron_schedule(). Throws UsageError if nothing can create the object
// of a placeholder, and ValueError if a DummyScheduler is not prepared together with exactly one
// optimizer.
void create_placeholders(DeepSpeedPlugin* deepspeed, const MegatronLMPlugin* megatron,
                         const std::vector<PrepareItem>& items, const PlaceholderSizes& sizes);

// Throws UsageError if an optimizer was created before nn::add_lora(), which freezes its
// parameters: if an optimizer of the call has frozen parameters of a model, and none has parameters
// of the model's adapter. Logs a warning for an optimizer whose parameters are all frozen. This is
// not an error, because a program may train them later, or may only load a checkpoint. PyTorch
// reports neither: its steps then change nothing.
void check_optimizers(const std::vector<PrepareItem>& items);

}  // namespace axle::accel
