// The options of an Accelerator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/config/fp8_recipes.h"
#include "accel/config/plugins.h"
#include "accel/config/project.h"
#include "accel/loading/data_loader.h"
#include "accel/tracking/tracker.h"
#include "accel/utils/profile.h"
#include "dist/group/mesh.h"
#include "dist/group/process_group.h"
#include "dist/parallel/data_parallel_options.h"
#include "optim/grad_scaler_options.h"

namespace axle::accel {

// The treatment of a short window: micro-batches at the end of a pass that are too few for an
// update.
enum class ShortWindow : std::uint8_t {
    as_upstream,  // a smaller update, as in Accelerate, because losses are divided by num_steps
    actual,       // an update with the mean of the losses of these micro-batches
    carry_over,   // micro-batches of the next pass complete the update
    drop,         // no update: the gradients are dropped, and the count of micro-batches restarts
};

struct GradientAccumulationPlugin {
    std::optional<int> num_steps = {};  // micro-batches per update; 1 by default
    // Whether schedules count micro-batches instead of updates (default: false). Each update then
    // advances them by its number of micro-batches (times the steps of SchedulerSteps). The length
    // of a schedule must then be the number of micro-batches.
    std::optional<bool> adjust_scheduler = {};
    // Whether the last batch of a pass completes an update and resets the counter of micro-batches,
    // unless short_window is carry_over or drop.
    bool sync_with_dataloader = true;
    // Whether gradients are averaged over processes after each micro-batch instead of once per
    // update.
    bool sync_each_batch = false;
    // The treatment of a short window. `actual` and `drop` require sync_with_dataloader; otherwise
    // UsageError is thrown.
    ShortWindow short_window = ShortWindow::as_upstream;
};

// The number of steps by which each update advances a schedule.
enum class SchedulerSteps : std::uint8_t {
    // One step per process that trains with different samples, as in Accelerate: schedules count
    // the batches of all processes. One step in total with split_batches, because a batch is then
    // divided among the processes.
    per_process,
    per_update,  // one step, for any number of processes
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

// An element of kwargs_handlers: one of the structs of options that Accelerate accepts there.
class KwargsHandler {
  public:
    KwargsHandler(DistributedDataParallelKwargs handler);  // NOLINT: implicit, here and below
    KwargsHandler(GradScalerKwargs handler);               // NOLINT
    KwargsHandler(InitProcessGroupKwargs handler);         // NOLINT
    KwargsHandler(AutocastKwargs handler);                 // NOLINT
    KwargsHandler(ProfileKwargs handler);                  // NOLINT
    KwargsHandler(AORecipeKwargs handler);                 // NOLINT
    KwargsHandler(TERecipeKwargs handler);                 // NOLINT

    struct Value;  // defined in accel/config/resolve_options.cpp
    const Value& value() const { return *value_; }

  private:
    std::shared_ptr<const Value> value_;
};

// The options of an Accelerator, in the order of Accelerate's constructor. An empty string means
// that the option is not set. Options that are not set are read from environment variables:
// ACCELERATE_MIXED_PRECISION or MIXED_PRECISION, ACCELERATE_USE_CPU, ACCELERATE_TORCH_DEVICE and
// ACCELERATE_DYNAMO_*. ACCELERATE_USE_DEEPSPEED, _FSDP, _MEGATRON_LM and _PARALLELISM_CONFIG add a
// plugin or configuration that is not given; the comments of these classes name further variables.
// Without a variable, options have their defaults.
struct AcceleratorOptions {
    bool device_placement = true;      // whether models and batches are moved to the device
    bool split_batches = false;        // the same option as in dataloader_config
    std::string mixed_precision = {};  // "no", "fp16", "bf16" or "fp8" (see fp8_recipes.h)
    // The number of micro-batches per update. The variable ACCELERATE_GRADIENT_ACCUMULATION_STEPS,
    // which launchers set, takes precedence. A gradient_accumulation_plugin replaces both; this
    // option must then be 1 (else UsageError). A number below 1 throws ValueError.
    int gradient_accumulation_steps = 1;
    bool cpu = false;  // whether the device is the CPU; if false, see PartialStateOptions
    std::optional<DataLoaderConfiguration> dataloader_config = {};
    std::optional<DeepSpeedPlugin> deepspeed_plugin = {};
    std::optional<FullyShardedDataParallelPlugin> fsdp_plugin = {};
    std::optional<TorchTensorParallelPlugin> torch_tp_plugin = {};
    std::optional<MegatronLMPlugin> megatron_lm_plugin = {};
    // Random states that are synchronized before each pass over a prepared loader: "torch", "cuda",
    // "generator" (RngType).
    std::vector<std::string> rng_types = {"generator"};
    // The trackers, as objects or by name ("tensorboard", "mlflow", "jsonl", "csv", "all", or a
    // name given to register_tracker_class()).
    std::vector<LogWith> log_with = {};
    // The project's directory, and the folder of trackers (by default project_dir). They may also
    // be set in project_config; different values throw UsageError.
    std::string project_dir = {};
    std::string logging_dir = {};
    ProjectConfiguration project_config = {};
    std::optional<GradientAccumulationPlugin> gradient_accumulation_plugin = {};
    // Whether prepared schedules advance with updates of the optimizer. If false, each
    // scheduler.step() advances the schedule by one step, independent of the optimizer.
    bool step_scheduler_with_optimizer = true;
    // The kwargs_handlers of Accelerate, at most one of each type (else ValueError). Each handler
    // sets one of the fields below, which must not be set too (else UsageError).
    std::vector<KwargsHandler> kwargs_handlers = {};
    // The backend of torch.compile. Axle does not compile models: a backend only logs a warning. To
    // speed up steps on a GPU, use Accelerator::compile(). If dynamo_plugin is given too, the
    // Accelerator throws UsageError.
    std::string dynamo_backend = {};
    std::optional<TorchDynamoPlugin> dynamo_plugin = {};
    // Plugins by name, instead of deepspeed_plugin (both: UsageError); the first one is active.
    std::vector<std::pair<std::string, DeepSpeedPlugin>> deepspeed_plugins = {};
    // The sizes of a mesh to create, instead of device_mesh or torch_tp_plugin (both: UsageError).
    std::optional<ParallelismConfig> parallelism_config = {};
    std::optional<AutocastKwargs> autocast_kwargs = {};
    // The recipe for mixed_precision "fp8" (accel/config/fp8_recipes.h): ao_recipe_kwargs scales by
    // the current values, te_recipe_kwargs by values of earlier steps. If both are given,
    // ao_recipe_kwargs applies. With another mixed_precision, a recipe throws ValueError.
    std::optional<AORecipeKwargs> ao_recipe_kwargs = {};
    std::optional<TERecipeKwargs> te_recipe_kwargs = {};
    std::optional<GradScalerKwargs> grad_scaler_kwargs = {};  // used by mixed_precision "fp16"
    std::optional<ProfileKwargs> profile_kwargs = {};         // used by profile() without options
    dist::DataParallelOptions ddp_kwargs = {};
    dist::ProcessGroupOptions init_process_group_kwargs = {};
    SchedulerSteps scheduler_steps = SchedulerSteps::per_process;
    // Whether outputs of models that compute in f16 or bf16 are converted to f32.
    bool convert_outputs_to_fp32 = true;
    // The processes to train on. If nullptr, all processes that the launcher has started.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
    // The mesh of the group's processes. It determines the data that each process reads
    // (accel/loading/data_loader.h).
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
    // Deprecated: use mixed_precision "fp16" and dataloader_config. The Accelerator throws
    // UsageError if an option and its replacement are given and differ.
    std::optional<bool> fp16 = {};
    std::optional<bool> even_batches = {};
    std::optional<bool> dispatch_batches = {};
    std::optional<bool> use_seedable_sampler = {};
};

}  // namespace axle::accel
