#include "accel/accelerator.h"

#include <algorithm>
#include <variant>

#include "accel/accelerator_parts.h"
#include "accel/config/resolve_options.h"
#include "accel/config/resolve_plugins.h"
#include "accel/megatron/megatron_network.h"
#include "accel/prepare/model_division.h"
#include "accel/prepare/model_sharding.h"
#include "accel/prepare/pipeline_model.h"
#include "accel/prepare/prepare_items.h"
#include "core/autograd/autocast.h"
#include "core/cuda.h"
#include "core/memory/memory.h"
#include "core/profiler/profiler.h"
#include "dist/sequence/ulysses.h"
#include "dist/sharding/full_state.h"
#include "nn/files/weight_files.h"

namespace axle::accel {
namespace {

ShardingPlugin sharding_plugin(const AcceleratorOptions& options) {
    if (options.deepspeed_plugin) return ShardingPlugin::deepspeed;
    if (options.megatron_lm_plugin) return ShardingPlugin::megatron_lm;
    if (!options.fsdp_plugin) return ShardingPlugin::none;
    return options.fsdp_plugin->fsdp_version.value_or(1) == 2 ? ShardingPlugin::fsdp2
                                                              : ShardingPlugin::fsdp1;
}

// Resolves `options`, joins the process group if needed, and returns the state of this process.
AcceleratorState start(AcceleratorOptions& options) {
    options = resolved(std::move(options));
    return AcceleratorState({.cpu = options.cpu,
                             .init_process_group_kwargs = options.init_process_group_kwargs,
                             .process_group = options.process_group},
                            precision(options), !options.mixed_precision.empty(),
                            sharding_plugin(options));
}

std::optional<DType> dtype_of(const std::string& mixed_precision) {
    if (mixed_precision == "bf16" || mixed_precision == "fp8") return bf16;
    if (mixed_precision == "fp16") return f16;
    return std::nullopt;
}

// Returns the dtype of weights in get_state_dict() and save_model(), or nullopt if the weights keep
// the dtypes of the model.
std::optional<DType> saved_dtype(const AcceleratorOptions& options,
                                 const std::string& mixed_precision) {
    const auto& plugin = options.deepspeed_plugin;
    const bool in_16_bits =
        plugin && plugin->zero_stage == 3 && plugin->zero3_save_16bit_model.value_or(false);
    return in_16_bits ? dtype_of(mixed_precision) : std::nullopt;
}

nn::StateDict with_saved_dtype(nn::StateDict weights, std::optional<DType> dtype) {
    if (dtype)
        for (auto& [name, tensor] : weights)
            if (is_floating(tensor.dtype())) tensor = tensor.to(*dtype);
    return weights;
}

AccumulationOptions accumulation(const AcceleratorOptions& options) {
    AccumulationOptions result{.num_steps = accumulation_steps(options)};
    if (const auto& plugin = options.gradient_accumulation_plugin) {
        result.sync_with_dataloader = plugin->sync_with_dataloader;
        result.sync_each_batch = plugin->sync_each_batch;
        result.short_window = plugin->short_window;
    }
    return result;
}

// Returns the options of schedules. `num_processes` is the number of processes that train with
// different samples.
ScheduleOptions schedules(const AcceleratorOptions& options, bool split_batches,
                          int num_processes) {
    ScheduleOptions result{.step_with_optimizer = options.step_scheduler_with_optimizer};
    if (!split_batches && options.scheduler_steps == SchedulerSteps::per_process)
        result.steps_per_update = num_processes;
    if (const auto& plugin = options.gradient_accumulation_plugin)
        result.count_micro_batches = plugin->adjust_scheduler.value_or(false);
    return result;
}

std::unique_ptr<LossScaling> loss_scaling(const AcceleratorOptions& options,
                                          const PartialState& processes) {
    const GradScalerKwargs scaler = options.grad_scaler_kwargs.value_or(GradScalerKwargs());
    if (!scaler.enabled) return nullptr;
    return std::make_unique<LossScaling>(
        scaler, processes.device(),
        processes.use_distributed() ? processes.process_group() : nullptr,
        options.megatron_lm_plugin.has_value());
}

// Returns the type of checkpoints that the FSDP plugin selects.
StateDictType state_dict_type_of(const AcceleratorOptions& options) {
    const bool in_parts =
        options.fsdp_plugin && options.fsdp_plugin->state_dict_type == "SHARDED_STATE_DICT";
    return in_parts ? StateDictType::sharded : StateDictType::full;
}

// Creates the parts of an Accelerator. If `mixed_precision` is "fp8", and the device does not
// support fp8 and the recipe does not emulate it, sets `mixed_precision` to a supported precision.
OwningPtr<AcceleratorParts> make_parts(const AcceleratorOptions& options,
                                       const AcceleratorState& processes,
                                       std::string& mixed_precision) {
    ProjectConfiguration folders = project(options);
    PreparationOptions preparation{.device_placement = options.device_placement,
                                   .outputs_to_f32 = options.convert_outputs_to_fp32,
                                   .data_parallel = options.ddp_kwargs,
                                   .loading = loading(options, processes.device())};
    auto tracking = std::make_unique<Tracking>(options.log_with, folders.logging_dir,
                                               processes.is_main_process());
    check_plugins(options, processes.num_processes());
    if (processes.is_main_process()) explain_dynamo(options);
    const std::shared_ptr<const dist::DeviceMesh> mesh =
        mesh_of(options, processes.process_group());
    preparation.loading.device_mesh = mesh;
    if (mesh != nullptr && mesh->has("sp"))
        preparation.context = std::make_shared<dist::Ulysses>(mesh->get_group("sp"));
    auto loop = std::make_shared<LoopState>();
    loop->accumulation.set_options(accumulation(options));
    loop->schedules =
        schedules(options, preparation.loading.config.split_batches,
                  mesh != nullptr ? data_parallel_size(*mesh) : processes.num_processes());
    preparation.fp8 = start_fp8(options, processes.device(), mixed_precision);
    if (mixed_precision == "fp16") loop->scaling = loss_scaling(options, processes);
    const AutocastKwargs autocast = options.autocast_kwargs.value_or(AutocastKwargs());
    if (autocast.enabled) preparation.autocast_dtype = dtype_of(mixed_precision);
    preparation.autocast_cache_enabled = autocast.cache_enabled;
    set_division(preparation, options);
    set_sharding(preparation, options, processes, mixed_precision);
    set_pipelines(preparation, options);
    auto parts = make_owning<AcceleratorParts>(std::move(folders), std::move(preparation),
                                               processes, std::move(loop), std::move(tracking));
    parts->files.set_state_dict_type(state_dict_type_of(options));
    return parts;
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : AcceleratorProcesses(start(options)),
      options_(std::move(options)),
      mixed_precision_(state().mixed_precision()),
      parts_(make_parts(options_, state(), mixed_precision_)) {
    set_mesh(parts_->preparation.loading().device_mesh,
             options_.parallelism_config || options_.megatron_lm_plugin);
}

Accelerator::~Accelerator() = default;

// --- preparing objects

void Accelerator::prepare_items(const std::vector<PrepareItem>& items, bool evaluation_mode) {
    DeepSpeedPlugin* const deepspeed =
        options_.deepspeed_plugin ? &*options_.deepspeed_plugin : nullptr;
    MegatronLMPlugin* const megatron =
        options_.megatron_lm_plugin ? &*options_.megatron_lm_plugin : nullptr;
    if (megatron != nullptr && !evaluation_mode)
        for (const PrepareItem& item : items)
            if (nn::Module* const* const model = std::get_if<nn::Module*>(&item.object))
                set_network_size_args(*megatron, **model);
    create_placeholders(deepspeed, megatron, items,
                        {.num_processes = num_processes() / mesh_size("sp"),
                         .replicas = parts_->preparation.data_parallel_size(),
                         .split_batches = split_batches(),
                         .accumulation_steps = gradient_accumulation_steps()});
    check_optimizers(items);
    for (const PrepareItem& item : items) parts_->preparation.prepare(item, evaluation_mode);
}

void Accelerator::select_deepspeed_plugin(std::string_view name) {
    accel::select_deepspeed_plugin(options_, name);
    auto& steps = options_.deepspeed_plugin->gradient_accumulation_steps;
    if (!steps) steps = gradient_accumulation_steps();
}

data::DataLoader& Accelerator::prepare_data_loader(data::DataLoader& loader,
                                                   std::optional<bool> device_placement,
                                                   SliceFn slice_fn_for_dispatch) {
    parts_->preparation.prepare(loader, device_placement, std::move(slice_fn_for_dispatch));
    return loader;
}

void Accelerator::check_placements(std::size_t placements, std::size_t objects) {
    if (placements != objects)
        throw ValueError(str("prepare: device_placement needs one value for each object: ",
                             placements, " values, ", objects, " objects"));
}

void Accelerator::remove_autocast(nn::Module& model) { drop_autocast(model); }

bool Accelerator::verify_device_map(const nn::Module& model) const {
    return is_on_several_devices(model);
}

void Accelerator::free_memory() {
    if (active_dataloader() != nullptr)
        throw UsageError(
            "free_memory: can't be called within the loop over a prepared loader; leave the loop "
            "first");
    parts_->preparation.clear();
    host_memory::empty_cache();
    if (device().is_cuda()) cuda::empty_cache(device().index);
}

// --- precision

std::optional<DType> Accelerator::autocast_dtype() const { return dtype_of(mixed_precision_); }

AutocastGuard Accelerator::autocast() const {
    return autocast(options_.autocast_kwargs.value_or(AutocastKwargs()));
}

AutocastGuard Accelerator::autocast(const AutocastKwargs& autocast_handler) const {
    const std::optional<DType> own = autocast_dtype();
    if (!own) return AutocastGuard(axle::autocast_dtype());
    return AutocastGuard(autocast_handler.enabled ? own : std::nullopt,
                         autocast_handler.cache_enabled);
}

optim::GradScaler* Accelerator::scaler() {
    return parts_->loop->scaling ? &parts_->loop->scaling->scaler() : nullptr;
}

bool Accelerator::has_fp8_handler() const {
    return options_.ao_recipe_kwargs || options_.te_recipe_kwargs || fp8_enabled();
}
Fp8Backend Accelerator::fp8_backend() const { return parts_->preparation.fp8_backend(); }
bool Accelerator::delayed_fp8_autocast() const {
    return fp8_backend() == Fp8Backend::TE && use_distributed();
}

// --- capturing and profiling

CompiledStep Accelerator::compile(std::function<Tensor(Tree&)> step, CompileOptions options) {
    return CompiledStep(parts_->capture, std::move(step), options);
}

ProfileSession Accelerator::profile() const {
    return profile(options_.profile_kwargs.value_or(ProfileKwargs()));
}
ProfileSession Accelerator::profile(ProfileKwargs options) const {
    return ProfileSession(std::move(options), process_index(), [this] { wait_for_everyone(); });
}

// --- checkpoints

void Accelerator::add_checkpointable(const void* object, std::shared_ptr<Checkpointable> state) {
    parts_->files.add_object(object, std::move(state));
}

void Accelerator::register_for_checkpointing(const std::vector<Checkpointable*>& objects) {
    std::string nulls;
    for (std::size_t i = 0; i < objects.size(); ++i)
        if (objects[i] == nullptr) nulls += str(nulls.empty() ? "" : ", ", i);
    if (!nulls.empty())
        throw ValueError(
            str("register_for_checkpointing: objects must not be null: null at index ", nulls));
    for (Checkpointable* object : objects) register_for_checkpointing(*object);
}

std::string Accelerator::save_state(const std::string& output_dir, SaveStateOptions options) {
    if (!options.safe_serialization)
        throw UsageError(
            "save_state: safe_serialization = false is not supported: Axle reads pickles, but does "
            "not write them; leave it out, because PyTorch also reads safetensors files");
    parts_->files.set_logged_steps(parts_->tracking->logged_steps());
    return parts_->files.save(output_dir, options);
}

void Accelerator::wait_for_saves() { parts_->files.wait(); }

std::string Accelerator::load_state(const std::string& input_dir, const LoadStateOptions& options) {
    const std::string& location = options.map_location;
    if (!location.empty() && location != "cpu" && location != "on_device")
        throw ValueError(
            str("load_state: map_location must be cpu or on_device: '", location, "'"));
    if (active_dataloader() != nullptr)
        throw UsageError(
            "load_state: can't be called within the loop over a prepared loader; leave the loop "
            "first");
    const std::string directory = parts_->files.load(input_dir, options);
    parts_->tracking->resume(parts_->files.logged_steps());
    return directory;
}

HookHandle Accelerator::register_save_state_pre_hook(SaveStatePreHook hook) {
    return HookHandle(parts_->files.save_hooks().add(std::move(hook)));
}
HookHandle Accelerator::register_load_state_pre_hook(LoadStatePreHook hook) {
    return HookHandle(parts_->files.load_hooks().add(std::move(hook)));
}

void Accelerator::set_save_iteration(std::int64_t iteration) {
    parts_->files.set_iteration(iteration);
}

bool Accelerator::should_save_model() const {
    return options_.parallelism_config || is_local_main_process();
}

nn::StateDict Accelerator::get_state_dict(const nn::Module& model, bool) const {
    if (const dist::Pipeline* const pipeline = find_pipeline(parts_->preparation, model)) {
        nn::StateDict state = pipeline->full_state_dict();
        return is_main_process() ? std::move(state) : nn::StateDict();
    }
    return with_saved_dtype(dist::is_sharded(model) || dist::has_slices(model)
                                ? dist::full_state_dict(model)
                                : model.state_dict(),
                            saved_dtype(options_, mixed_precision_));
}

void Accelerator::save_model(const nn::Module& model, const std::string& directory,
                             const SaveModelOptions& options) const {
    if (!options.safe_serialization)
        throw UsageError(
            "save_model: safe_serialization = false is not supported: Axle reads pickles, but does "
            "not write them; leave it out, because PyTorch also reads safetensors files");
    const profiler::Scope scope("save_model", profiler::Category::io);
    const bool each_node = options.save_on_each_node || project_configuration().save_on_each_node;
    const dist::Pipeline* const pipeline = find_pipeline(parts_->preparation, model);
    const dist::FullStateOptions full{.rank0_only = !each_node};
    const nn::StateDict weights = with_saved_dtype(
        pipeline != nullptr ? pipeline->full_state_dict(full) : dist::full_state_dict(model, full),
        saved_dtype(options_, mixed_precision_));
    if (is_saving_process(state(), each_node))
        nn::save_weights(weights, directory, options.max_shard_size);
}

void Accelerator::save(const nn::StateDict& tensors, const std::string& path,
                       bool save_on_each_node) const {
    if (is_saving_process(state(), save_on_each_node || project_configuration().save_on_each_node))
        write_object(tensors, path);
}
void Accelerator::save(const Tree& object, const std::string& path, bool save_on_each_node) const {
    if (is_saving_process(state(), save_on_each_node || project_configuration().save_on_each_node))
        write_object(object, path);
}

// --- trackers

void Accelerator::init_trackers(const std::string& project_name, const Tree& config,
                                const Tree& init_kwargs) {
    parts_->tracking->init(project_name, config, init_kwargs);
}
void Accelerator::log(const Tree& values, std::optional<std::int64_t> step,
                      const Tree& log_kwargs) {
    parts_->tracking->log(values, step, log_kwargs);
}
Tracker& Accelerator::get_tracker(const std::string& name, bool unwrap) {
    return parts_->tracking->get(name, unwrap);
}
std::vector<Tracker*> Accelerator::trackers() const { return parts_->tracking->trackers(); }

void Accelerator::end_training() {
    parts_->tracking->finish();
    // Processes started by dist::launch leave the group when they exit.
    if (dist::process_variable("FORK_LAUNCHED") != "1") destroy_process_group();
}

// --- configuration

const DataLoaderConfiguration& Accelerator::dataloader_config() const {
    return parts_->preparation.loading().config;
}
void Accelerator::set_even_batches(bool even) { parts_->preparation.set_even_batches(even); }
const ProjectConfiguration& Accelerator::project_configuration() const {
    return parts_->files.project();
}

}  // namespace axle::accel
