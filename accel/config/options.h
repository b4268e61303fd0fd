// The options of an Accelerator.
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

// The treatment of micro-batches at the end of a pass that are too few for an update.
enum class ShortWindow : std::uint8_t {
    as_upstream,  // as Accelerate: a smaller update, because losses are divided by num_steps
    actual,       // an update with the mean of their losses
    carry_over,   // the next pass completes the update, as without sync_with_dataloader
    drop,         // their gradients are dropped, and the counter is reset
};

struct GradientAccumulationPlugin {
    std::optional<int> num_steps = {};
    // true: schedules count micro-batches. Their length is the number of micro-batches, and each
    // update advances them by its number of micro-batches (times the steps of SchedulerSteps).
    // false, the default: schedules count updates.
    std::optional<bool> adjust_scheduler = {};
    // The last batch of a pass completes an update, and the counter is reset.
    bool sync_with_dataloader = true;
    // Gradients are averaged over processes after each micro-batch.
    bool sync_each_batch = false;
    // `actual` and `drop` need sync_with_dataloader (UsageError).
    ShortWindow short_window = ShortWindow::as_upstream;
};

// The number of steps by which each update advances a schedule.
enum class SchedulerSteps : std::uint8_t {
    per_process,  // one per process, as Accelerate: schedules count the batches of all processes
    per_update,   // one
};

using GradScalerKwargs = optim::GradScalerOptions;
using DistributedDataParallelKwargs = dist::DataParallelOptions;
using InitProcessGroupKwargs = dist::ProcessGroupOptions;

// The options of autocast() and of prepared models.
struct AutocastKwargs {
    bool enabled = true;
    // Whether casts of weights are cached; true by default.
    std::optional<bool> cache_enabled = {};
};

using KwargsHandler =
    std::variant<DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs,
                 AutocastKwargs, ProfileKwargs, AORecipeKwargs, TERecipeKwargs>;

// Fields are in the order of Accelerate's constructor. Empty text means unset: then environment
// variables apply (ACCELERATE_MIXED_PRECISION or MIXED_PRECISION, ACCELERATE_USE_CPU,
// ACCELERATE_TORCH_DEVICE, ACCELERATE_DYNAMO_*), then defaults.
struct AcceleratorOptions {
    bool device_placement = true;      // move models and batches to the device
    bool split_batches = false;        // as in dataloader_config
    std::string mixed_precision = {};  // "no", "fp16", "bf16" or "fp8" (accel/precision/fp8.h)
    // Micro-batches per update. ACCELERATE_GRADIENT_ACCUMULATION_STEPS, which launchers set, takes
    // precedence.
    int gradient_accumulation_steps = 1;
    bool cpu = false;  // false: use this process's GPU, if there is one
    std::optional<DataLoaderConfiguration> dataloader_config = {};
    std::optional<DeepSpeedPlugin> deepspeed_plugin = {};
    std::optional<FullyShardedDataParallelPlugin> fsdp_plugin = {};
    std::optional<TorchTensorParallelPlugin> torch_tp_plugin = {};
    std::optional<MegatronLMPlugin> megatron_lm_plugin = {};
    // Random states that are synchronized before each pass over a prepared loader: "torch", "cuda",
    // "generator".
    std::vector<std::string> rng_types = {"generator"};
    // Trackers, as objects or by name ("tensorboard", "jsonl", "csv", "all", or registered names).
    std::vector<LogWith> log_with = {};
    // The project's directory. It can also be set in project_config; different values throw
    // UsageError.
    std::string project_dir = {};
    std::string logging_dir = {};
    ProjectConfiguration project_config = {};
    std::optional<GradientAccumulationPlugin> gradient_accumulation_plugin = {};
    // false: each scheduler.step() is one step of the schedule, independent of the optimizer.
    bool step_scheduler_with_optimizer = true;
    // Handlers, at most one of each type. They are moved to the fields below.
    std::vector<KwargsHandler> kwargs_handlers = {};
    // Has no effect except for a warning: models are not compiled. On a GPU, compile() captures
    // steps.
    std::string dynamo_backend = {};
    std::optional<TorchDynamoPlugin> dynamo_plugin = {};
    // Plugins by name; the first one is active.
    std::vector<std::pair<std::string, DeepSpeedPlugin>> deepspeed_plugins = {};
    // The sizes of a mesh to create, instead of device_mesh.
    std::optional<ParallelismConfig> parallelism_config = {};
    std::optional<AutocastKwargs> autocast_kwargs = {};
    // For "fp8": scales from the current values, or from the values of earlier steps
    // (accel/precision/fp8.h). If both are given, the first one applies.
    std::optional<AORecipeKwargs> ao_recipe_kwargs = {};
    std::optional<TERecipeKwargs> te_recipe_kwargs = {};
    std::optional<GradScalerKwargs> grad_scaler_kwargs = {};  // for "fp16"
    std::optional<ProfileKwargs> profile_kwargs = {};         // for profile() without options
    dist::DataParallelOptions ddp_kwargs = {};
    dist::ProcessGroupOptions init_process_group_kwargs = {};
    SchedulerSteps scheduler_steps = SchedulerSteps::per_process;
    // Outputs of models that compute in f16 or bf16 are converted to f32.
    bool convert_outputs_to_fp32 = true;
    // The group to use instead of all processes that the launcher has started.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
    // The mesh of the group's processes, which decides who reads which data
    // (accel/loading/data_loader.h).
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
    // Deprecated: use mixed_precision "fp16" and dataloader_config. Throws UsageError if both are
    // given and differ.
    std::optional<bool> fp16 = {};
    std::optional<bool> even_batches = {};
    std::optional<bool> dispatch_batches = {};
    std::optional<bool> use_seedable_sampler = {};
};

}  // namespace axle::accel
