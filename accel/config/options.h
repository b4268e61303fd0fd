// What an Accelerator is told at construction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "accel/config/plugins.h"
#include "accel/loading/data_loader.h"
#include "accel/precision/fp8.h"
#include "accel/state/project.h"
#include "accel/tracking/tracker.h"
#include "accel/utils/profile.h"
#include "dist/group/mesh.h"
#include "dist/group/process_group.h"
#include "dist/parallel/data_parallel.h"
#include "optim/grad_scaler.h"

namespace axle::accel {

// What becomes of the micro-batches at the end of a pass that are too few for an update.
enum class ShortWindow : std::uint8_t {
    as_upstream,  // an update, of losses divided by num_steps: a smaller one, as Accelerate's
    actual,       // an update of their mean
    carry_over,   // the next pass goes on with them, as without sync_with_dataloader
    drop,         // none: their gradients are forgotten, and counting starts anew
};

struct GradientAccumulationPlugin {
    std::optional<int> num_steps = {};
    // true: the length of a schedule counts micro-batches, as many as there are without
    // accumulation, and with an update it goes on by as many steps as the update has micro-batches
    // (each times those of SchedulerSteps). Else it counts updates.
    std::optional<bool> adjust_scheduler = {};
    // The last batch of a pass completes an update, and counting starts anew.
    bool sync_with_dataloader = true;
    // Gradients are averaged over the processes after every micro-batch.
    bool sync_each_batch = false;
    // UsageError for `actual` and `drop` without sync_with_dataloader.
    ShortWindow short_window = ShortWindow::as_upstream;
};

// How far a schedule goes with each update.
enum class SchedulerSteps : std::uint8_t {
    per_process,  // a step for each process, as Accelerate: a schedule counts one process's batches
    per_update,
};

using GradScalerKwargs = optim::GradScalerOptions;
using DistributedDataParallelKwargs = dist::DataParallelOptions;
using InitProcessGroupKwargs = dist::ProcessGroupOptions;

// Of autocast(), and of what a prepared model opens.
struct AutocastKwargs {
    bool enabled = true;
    // Whether casts of weights are kept; without a word they are.
    std::optional<bool> cache_enabled = {};
};

using KwargsHandler =
    std::variant<DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs,
                 AutocastKwargs, ProfileKwargs, AORecipeKwargs, TERecipeKwargs>;

// Fields in the order of Accelerate's constructor. An empty text means "not said": then the
// environment is asked (ACCELERATE_MIXED_PRECISION or MIXED_PRECISION, ACCELERATE_USE_CPU,
// ACCELERATE_TORCH_DEVICE, ACCELERATE_DYNAMO_*), then the default holds.
struct AcceleratorOptions {
    bool device_placement = true;      // move models and batches to the device
    bool split_batches = false;        // as dataloader_config's
    std::string mixed_precision = {};  // "no", "fp16", "bf16" or "fp8" (accel/precision/fp8.h)
    // Micro-batches per update. ACCELERATE_GRADIENT_ACCUMULATION_STEPS, which a launcher sets,
    // wins.
    int gradient_accumulation_steps = 1;
    bool cpu = false;  // else the GPU of this process, where there is one
    std::optional<DataLoaderConfiguration> dataloader_config = {};
    std::optional<DeepSpeedPlugin> deepspeed_plugin = {};
    std::optional<FullyShardedDataParallelPlugin> fsdp_plugin = {};
    std::optional<TorchTensorParallelPlugin> torch_tp_plugin = {};
    std::optional<MegatronLMPlugin> megatron_lm_plugin = {};
    // What processes draw alike in each pass over a prepared loader: "torch", "cuda", "generator".
    std::vector<std::string> rng_types = {"generator"};
    // Trackers, by name ("tensorboard", "jsonl", "csv", "all", registered ones) or as objects.
    std::vector<LogWith> log_with = {};
    // Both also as project_config's; a UsageError where the two differ.
    std::string project_dir = {};
    std::string logging_dir = {};
    ProjectConfiguration project_config = {};
    std::optional<GradientAccumulationPlugin> gradient_accumulation_plugin = {};
    // false: scheduler.step() is one step of the schedule, whatever the optimizer did.
    bool step_scheduler_with_optimizer = true;
    // Each of its kind, at most one; they go to the fields below, which are there to be read.
    std::vector<KwargsHandler> kwargs_handlers = {};
    // Models are not compiled: a step is, on a GPU, by compile(). The name of a backend is taken
    // and said to be that.
    std::string dynamo_backend = {};
    std::optional<TorchDynamoPlugin> dynamo_plugin = {};
    // By name; the first is active.
    std::vector<std::pair<std::string, DeepSpeedPlugin>> deepspeed_plugins = {};
    // The mesh that it makes takes the place of device_mesh.
    std::optional<ParallelismConfig> parallelism_config = {};
    std::optional<AutocastKwargs> autocast_kwargs = {};
    // Of "fp8": scales of the very values, or of those in the steps before (accel/precision/fp8.h).
    // Where both are given the first holds.
    std::optional<AORecipeKwargs> ao_recipe_kwargs = {};
    std::optional<TERecipeKwargs> te_recipe_kwargs = {};
    std::optional<GradScalerKwargs> grad_scaler_kwargs = {};  // of "fp16"
    std::optional<ProfileKwargs> profile_kwargs = {};         // of profile() without an argument
    dist::DataParallelOptions ddp_kwargs = {};
    dist::ProcessGroupOptions init_process_group_kwargs = {};
    SchedulerSteps scheduler_steps = SchedulerSteps::per_process;
    // Models that compute in f16 or bf16 give their outputs in f32.
    bool convert_outputs_to_fp32 = true;
    // Instead of the group of all processes that the launcher started.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
    // Of that group's processes: who reads which data (accel/loading/data_loader.h).
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
    // Deprecated: mixed_precision "fp16", and dataloader_config's. UsageError where both are said
    // and differ.
    std::optional<bool> fp16 = {};
    std::optional<bool> even_batches = {};
    std::optional<bool> dispatch_batches = {};
    std::optional<bool> use_seedable_sampler = {};
};

}  // namespace axle::accel
