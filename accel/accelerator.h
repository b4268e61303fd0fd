// Accelerator: runs a training loop on one or several devices, with the API of Accelerate.
//
//     axle::Accelerator accelerator({.mixed_precision = "bf16", .gradient_accumulation_steps = 4});
//     auto [model, optimizer, loader, scheduler] =
//         accelerator.prepare(gpt, adamw, train_loader, cosine);
//     for (auto& batch : loader) {
//         auto scope = accelerator.accumulate(model);
//         auto loss = model.loss(batch["input_ids"], batch["labels"]);
//         accelerator.backward(loss);
//         if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 1.0);
//         optimizer.step();
//         scheduler.step();
//         optimizer.zero_grad();
//     }
//
// With several processes, loaders are sharded, and gradients are averaged over the processes.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "accel/capture/compile.h"
#include "accel/config/options.h"
#include "accel/loop/backward_options.h"
#include "accel/loop/gradient_state.h"
#include "accel/loop/sync_scopes.h"
#include "accel/prepare/preparable.h"
#include "accel/process/accelerator_processes.h"
#include "accel/process/mesh_ranks.h"
#include "accel/state/checkpointable.h"
#include "accel/state/save_model.h"
#include "accel/state/state_hooks.h"
#include "accel/state/state_options.h"
#include "accel/tracking/tracker.h"
#include "accel/utils/profile.h"
#include "core/memory/owning_ptr.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "data/loading/loader.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

struct AcceleratorParts;

// Prepares models, optimizers, schedulers and data loaders for training. Runs the parts of the loop
// that depend on the number of processes, the precision and gradient accumulation. Ranks, barriers
// and collectives such as gather() are inherited (accel/process/accelerator_processes.h).
//
// Ownership: prepared and registered objects are not owned. A prepared object may outlive the
// Accelerator, and is detached when it is destroyed or prepared by another Accelerator. A prepared
// model may be moved. Registered objects must not move, and must outlive the Accelerator. Threads:
// calls must come from one thread at a time, in the same order on all processes.
class Accelerator : public AcceleratorProcesses, public MeshRanks {
  public:
    // Throws ValueError for invalid options, and if they select another precision or device than an
    // existing Accelerator of this thread. Throws UsageError for contradictory options,
    // NotImplementedError for missing features, and the errors of PartialState.
    explicit Accelerator(AcceleratorOptions options = {});
    // Waits for an asynchronous save, and finishes the trackers.
    ~Accelerator();

    // --- preparing objects

    // Prepares models, optimizers, loaders and schedulers in any order, and returns references to
    // them. Moves models to the device, shards loaders, and attaches hooks. A pointer or optional
    // stands for its object, a range or map for its elements. Other arguments and prepared objects
    // are not changed. Throws UsageError for an empty pointer or an optimizer created before
    // nn::add_lora(), and the errors of check_visit(), verify_device_map(), plugins and loaders.
    template <class... T>
        requires(sizeof...(T) > 1)
    std::tuple<T&...> prepare(T&... objects);
    template <class T>
    T& prepare(T& object);
    // Prepares objects with one device_placement per object. With false, a model or the batches of
    // a loader are not moved. Throws ValueError unless the numbers of values and objects are equal.
    //     accelerator.prepare({false, true}, teacher, student);
    template <class... T>
    std::tuple<T&...> prepare(std::initializer_list<bool> device_placement, T&... objects);
    // Prepares one object; the options are ignored if it is already prepared. In evaluation_mode a
    // model is not divided, sharded or broadcast, and its gradients are not averaged.
    template <std::derived_from<nn::Module> Model>
    Model& prepare_model(Model& model, std::optional<bool> device_placement = {},
                         bool evaluation_mode = false);
    template <std::derived_from<optim::Optimizer> O>
    O& prepare_optimizer(O& optimizer, std::optional<bool> device_placement = {});
    template <std::derived_from<optim::Scheduler> S>
    S& prepare_scheduler(S& scheduler);
    // Prepares a loader. A prepared loader is prepared again only if an option is given.
    data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                          std::optional<bool> device_placement = {},
                                          SliceFn slice_fn_for_dispatch = {});
    // Selects the plugin of deepspeed_plugins that later calls of prepare() use. Throws ValueError
    // if no plugin has this name.
    void select_deepspeed_plugin(std::string_view name);
    // Returns the model, which is not wrapped. keep_fp32_wrapper = false turns off autocast and the
    // conversion of outputs to f32 for a prepared model.
    template <class T>
    T& unwrap_model(T& model, bool keep_fp32_wrapper = true, bool keep_torch_compile = true);
    // Returns whether the parameters are on several devices, including the meta device of offloaded
    // weights. Such a model can't be prepared on several processes (ValueError) unless
    // ACCELERATE_BYPASS_DEVICE_MAP is true.
    bool verify_device_map(const nn::Module& model) const;
    // Removes the hooks of all prepared objects and the references to these objects, and frees
    // cached memory. Throws UsageError within a loop over a prepared loader.
    void free_memory();
    // Calls free_memory() and resets the owners (std::unique_ptr, std::shared_ptr, std::optional).
    template <class... Owners>
        requires(sizeof...(Owners) > 0)
    void free_memory(Owners&... owners);
    template <class... Owners>
    void clear(Owners&... owners) {
        free_memory(owners...);
    }

    // --- gradient accumulation and synchronization. Throw UsageError for a model that is not
    // prepared, unless the call does nothing with the model.

    // Begins a micro-batch and decides whether it completes an update: see sync_gradients(). If
    // not, optimizer.step() and zero_grad() do nothing. Gradients of the given models (default:
    // all) are then averaged over the processes only with sync_each_batch. The scope must live
    // until the end of the micro-batch.
    template <std::derived_from<nn::Module>... Models>
    AccumulateScope accumulate(Models&... models) {
        return begin_micro_batch({&models...});
    }
    // Returns a scope in which the gradients of the given models (default: all) are not averaged.
    template <std::derived_from<nn::Module>... Models>
    NoSyncScope no_sync(Models&... models) {
        return NoSyncScope(no_sync_guards({&models...}));
    }
    // Returns a scope in which gradients are averaged although the forward pass ran in no_sync().
    SyncScope trigger_sync_in_backward(nn::Module& model);
    // Returns a scope in which processes may have different numbers of batches (dist::Join). In it,
    // even_batches, if given, replaces the setting of the loader configuration. If it is false,
    // loaders of map-style and sharded datasets repeat no samples. Has no effect on one process.
    // Throws UsageError if a model is sharded or has a pipeline, and the errors of dist::Join.
    JoinScope join_uneven_inputs(const std::vector<nn::Module*>& models,
                                 std::optional<bool> even_batches = {});
    // Returns the object that averages the gradients of the model, or nullptr if there is none.
    dist::DistributedModel* data_parallel(const nn::Module& model) const;
    // Returns whether the latest micro-batch completes an update. The initial value is true.
    bool sync_gradients() const;
    // Overrides sync_gradients() until the next micro-batch.
    void set_sync_gradients(bool sync);
    // Returns the number of micro-batches since the last reset. With sync_with_dataloader, the last
    // batch of a pass resets it to 0 (with drop, the end of the pass; with carry_over, nothing).
    std::int64_t step() const;
    GradientState gradient_state() const;
    int gradient_accumulation_steps() const;
    // Sets the number of micro-batches per update. Throws ValueError if it is less than 1.
    void set_gradient_accumulation_steps(int steps);
    // Returns the loader of the innermost running loop over a prepared loader, or nullptr.
    data::DataLoader* active_dataloader() const;
    // Returns how many rows of this process's batch are new in this pass. They are the first rows;
    // the remaining rows repeat earlier samples. Returns `rows` outside of loops, or if the current
    // batch does not have `rows` rows. If several processes read the same data, only one process
    // has valid rows.
    std::int64_t valid_rows(std::int64_t rows) const;
    // Returns a view that skips batches, to resume a pass. Throws ValueError for a negative number.
    data::SkipDataLoader skip_first_batches(data::DataLoader& loader,
                                            std::int64_t num_batches = 0) const;

    // --- backward and gradients

    // Computes the gradients of loss / gradient_accumulation_steps(), multiplied by the loss scale
    // in fp16, and adds them to the `grad` of the leaves. Throws the errors of Tensor::backward().
    void backward(const Tensor& loss, const BackwardOptions& options = {});
    // Computes the gradients of a loss that is a sum over `weight` items, such as tokens. The loss
    // of an update is the sum of its losses divided by the sum of their weights, over all
    // micro-batches and processes. The last backward pass of the update divides the gradients; they
    // are zero if all weights are zero. In fp16 the loss scale becomes lower than for a mean loss.
    // `weight` is a finite number >= 0 (else ValueError) or a one-element tensor (else ShapeError),
    // not read on the host. Throws UsageError if an update mixes losses with and without a weight,
    // if the loss depends on no prepared parameter, or during capture (the step then runs eagerly).
    void backward(const Tensor& loss_sum, double weight);
    void backward(const Tensor& loss_sum, const Tensor& weight);
    // Runs the forward and backward pass of a batch through the stages of a prepared model
    // (docs/parallelism_pipeline.md). `loss` is the plugin's custom_loss_function or
    // nn::label_loss() by default. Returns the mean loss, a 0-d f64 tensor, on all ranks. Throws
    // UsageError for a model without a pipeline, and the errors of dist::Pipeline::step().
    Tensor pipeline_step(nn::Module& model, const Tree& batch,
                         const std::function<Tensor(const Tensor&, const Tree&)>& loss = {});
    // Returns the stages of a prepared model. Throws UsageError for a model without a pipeline.
    dist::Pipeline& pipeline(nn::Module& model) const;
    // Replaces backward() and step() for prepared LOMO optimizers: updates each parameter as soon
    // as its gradient is final or, with several processes, after the backward pass. Each call is an
    // update. Throws ValueError if learning_rate is nullopt or no LOMO optimizer is prepared,
    // UsageError if fp16 scales the loss, and the errors of fused_backward() (optim/lomo.h).
    void lomo_backward(const Tensor& loss, std::optional<double> learning_rate);
    // Clip gradients as in optim/clip.h, after unscaling them in fp16. clip_grad_norm_ returns the
    // norm before clipping. Throw UsageError if sync_gradients() is false.
    Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                           double norm_type = 2);
    void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);
    // Complete the gradients in place, to inspect them before the step: divide them by the loss
    // scale in fp16. If sync_gradients() is true, also divide them by the weights of the losses.
    // Further calls within an update do nothing. Throw UsageError for a null optimizer.
    void unscale_gradients();
    void unscale_gradients(optim::Optimizer& optimizer);
    void unscale_gradients(const std::vector<optim::Optimizer*>& optimizers);
    // Returns whether the last step of any prepared optimizer was skipped because gradients were
    // not finite. Reads device memory.
    bool optimizer_step_was_skipped() const;

    // --- precision

    // Returns "no", "fp16", "bf16" or "fp8".
    const std::string& mixed_precision() const { return mixed_precision_; }
    // Returns whether mixed_precision is not "no", even if autocast_kwargs disables autocast.
    bool native_amp() const { return autocast_dtype().has_value(); }
    // Returns a scope in which this thread's operations run in mixed precision; a handler with
    // enabled = false turns mixed precision off. Has no effect if mixed_precision is "no". The
    // forward pass of a prepared model runs in such a scope by default.
    AutocastGuard autocast() const;
    AutocastGuard autocast(const AutocastKwargs& autocast_handler) const;
    // Returns the loss scaler, or nullptr unless it is enabled and mixed_precision is "fp16". The
    // scale is updated once per iteration, from the gradients of all prepared optimizers.
    optim::GradScaler* scaler();
    // Return whether mixed_precision is "fp8" (accel/config/fp8_recipes.h), the kind of recipe,
    // whether a recipe was requested, and whether several processes use delayed scaling.
    bool fp8_enabled() const { return mixed_precision_ == "fp8"; }
    Fp8Backend fp8_backend() const;
    bool has_fp8_handler() const;
    bool delayed_fp8_autocast() const;

    // --- capturing, profiling

    // Returns a step that is captured as a CUDA graph and replayed (accel/capture/compile.h). The
    // step must not outlive the Accelerator.
    [[nodiscard]] CompiledStep compile(std::function<Tensor(Tree&)> step,
                                       CompileOptions options = {});
    // Starts a profiler session, which records until it is stopped or destroyed
    // (accel/utils/profile.h). Without options, uses AcceleratorOptions::profile_kwargs.
    [[nodiscard]] ProfileSession profile() const;
    [[nodiscard]] ProfileSession profile(ProfileKwargs options) const;

    // --- sequences that several processes share

    // Returns a scope for the forward and backward pass of one batch, if cp_size is above 1. In the
    // scope, `buffers` contain this process's part of the sequences along buffer_seq_dims, and
    // attention is computed over whole sequences. The end of the scope restores all buffers except
    // no_restore_buffers. Without context parallelism, warns once. Throws the errors of
    // dist::ContextParallelScope.
    ContextParallelScope maybe_context_parallel(const std::vector<Tensor>& buffers = {},
                                                const std::vector<int>& buffer_seq_dims = {},
                                                const std::vector<Tensor>& no_restore_buffers = {});
    // Makes the processes of sequence parallelism share their batches, which must be maps with
    // "input_ids" (see dist::ulysses_batches()), and returns `loader`. len() and positions count
    // sp_size micro-batches for each batch. Has no effect if sp_size is 1. `model` is not used.
    // Throws UsageError if the loader is not prepared, and during a pass.
    data::DataLoader& deepspeed_ulysses_dl_adapter(data::DataLoader& loader, nn::Module& model);

    // --- checkpoints

    // Adds objects to the checkpoints, in the order of the arguments. An object is a
    // Checkpointable, a module, or has load_state_dict() and a state_dict() that returns a Tree.
    // free_memory() does not remove the objects.
    template <Registrable... T>
    void register_for_checkpointing(T&... objects) {
        (add_checkpointable(&objects, as_checkpointable(objects)), ...);
    }
    // Adds the objects in order. Throws ValueError with the indices of null pointers.
    void register_for_checkpointing(const std::vector<Checkpointable*>& objects);
    // Saves a checkpoint of models, optimizers, schedulers, loaders with their positions, the loss
    // scale, random states, registered objects, the state of replicas
    // (dist::DataParallel::state_dict) and, between two updates, gradients (NotImplementedError for
    // a pipeline). Returns its path. The directory is complete or absent. With
    // automatic_checkpoint_naming, output_dir is ignored; throws ValueError if the directory
    // exists. Without it, output_dir must be given and equal on all processes (else ValueError),
    // and replaces an existing checkpoint. Throws FileError if a file can't be written (if
    // asynchronous: in wait_for_saves()), and UsageError if output_dir is or contains the working
    // directory, or if a prepared model, optimizer or scheduler was destroyed or prepared by
    // another Accelerator and none was prepared later.
    std::string save_state(const std::string& output_dir = {}, SaveStateOptions options = {});
    // Waits for the asynchronous save and throws its error. All processes must call this function.
    void wait_for_saves();
    // Loads a checkpoint of save_state(), or one that Accelerate has saved (without random states,
    // loader positions and gradients). Without input_dir, loads the newest checkpoint in the folder
    // of automatic_checkpoint_naming; throws ValueError if that option is not set. Returns the
    // path. Throws FileError if a part is missing, is damaged, or does not match the prepared
    // objects; a damaged checkpoint changes nothing. Throws UsageError within a loop over a
    // prepared loader, and, like save_state(), for destroyed objects.
    std::string load_state(const std::string& input_dir = {}, const LoadStateOptions& options = {});
    // Add hooks that are called in the order of registration (accel/state/state_hooks.h).
    HookHandle register_save_state_pre_hook(SaveStatePreHook hook);
    HookHandle register_load_state_pre_hook(LoadStatePreHook hook);
    // The number of the next checkpoint: the number of the last saved or loaded checkpoint plus 1,
    // or the number set after that. Setting a negative number throws ValueError.
    std::int64_t save_iteration() const { return project_configuration().iteration; }
    void set_save_iteration(std::int64_t iteration);
    // Returns the parameters and buffers, which share the model's memory, under all their names. If
    // processes divide the model, returns copies of all elements on process 0, and an empty map on
    // the other processes (dist/sharding/full_state.h). All processes must call this function.
    nn::StateDict get_state_dict(const nn::Module& model, bool unwrap = true) const;
    // Writes the weights to a folder as safetensors files on the main process, or on one process of
    // each machine (SaveModelOptions). Throws FileError if that fails. Call wait_for_everyone()
    // before other processes read. If processes divide the model, all must call this function.
    void save_model(const nn::Module& model, const std::string& directory,
                    const SaveModelOptions& options = {}) const;
    // Writes tensors, or a value without tensors, to a file on the main process
    // (accel/state/save_model.h). With save_on_each_node, as an argument or in the project
    // configuration, the main process of each machine writes the file.
    void save(const nn::StateDict& state, const std::string& path,
              bool save_on_each_node = false) const;
    void save(const Tree& object, const std::string& path, bool save_on_each_node = false) const;
    // Returns whether this process is the main process of its machine. With a parallelism_config,
    // returns true on all processes, as Accelerate does. save_model() does not use this value.
    bool should_save_model() const;

    // --- trackers (accel/tracking/tracker.h). Exceptions of trackers are logged and do not
    // interrupt training, unless set_error_policy (core/system/log.h) changes that.

    // Creates and starts the trackers of log_with and passes them `config`, a map of
    // hyperparameters, unless it is null. If load_state() is called before or after this function,
    // the first log() continues the files of the earlier run (Tracker::resume). init_kwargs maps
    // the name of a tracker to its options, for example {{"jsonl", {{"purge_step", 40}}}}. Throws
    // ValueError for unknown options and values other than maps, and UsageError for a null tracker.
    void init_trackers(const std::string& project_name, const Tree& config = {},
                       const Tree& init_kwargs = {});
    // Passes a map of values to each tracker. Before init_trackers(), values are dropped, and the
    // first call logs a warning. log_kwargs maps the name of a tracker to further options. Throws
    // ValueError if `values` or log_kwargs is not a map.
    void log(const Tree& values, std::optional<std::int64_t> step = {},
             const Tree& log_kwargs = {});
    // Returns the tracker with this name, valid until the next init_trackers(). Its exceptions are
    // reported and not thrown; with `unwrap` they are thrown. Without trackers, returns a tracker
    // that does nothing. Throws ValueError for an unknown name.
    Tracker& get_tracker(const std::string& name, bool unwrap = false);
    std::vector<Tracker*> trackers() const;
    // Finishes the trackers and, unless dist::launch has started this process, leaves the process
    // group (PartialState::destroy_process_group). Call this function last.
    void end_training();

    // --- metrics

    // Gathers values computed from the current batch and removes rows that repeat earlier samples.
    // Over a pass, the results contain each sample's row once, in the loader's order. Tensors
    // without one row per sample are gathered unchanged. With use_gather_object, or if a leaf is
    // neither tensor nor null, acts as dist::gather_object and also removes repeated list elements.
    Tree gather_for_metrics(const Tree& input, bool use_gather_object = false) const;
    template <StructuredType T>
    T gather_for_metrics(const T& input, bool use_gather_object = false) const;

    // --- configuration

    // Returns the options. Unset fields of plugins have the values of environment variables or
    // defaults.
    const AcceleratorOptions& options() const { return options_; }
    const DataLoaderConfiguration& dataloader_config() const;
    const ProjectConfiguration& project_configuration() const;
    const std::string& project_dir() const { return project_configuration().project_dir; }
    const std::string& logging_dir() const { return project_configuration().logging_dir; }
    bool split_batches() const { return dataloader_config().split_batches; }
    std::optional<bool> dispatch_batches() const { return dataloader_config().dispatch_batches; }
    bool even_batches() const { return dataloader_config().even_batches; }
    // Sets even_batches for loaders that are prepared from now on.
    void set_even_batches(bool even);
    bool use_seedable_sampler() const { return dataloader_config().use_seedable_sampler; }
    bool non_blocking() const { return dataloader_config().non_blocking; }
    bool use_stateful_dataloader() const { return dataloader_config().use_stateful_dataloader; }

  private:
    friend class MegatronEngine;
    void prepare_items(const std::vector<PrepareItem>& items, bool evaluation_mode = false);
    template <class T>
    T& prepare_object(T& object, std::optional<bool> device_placement = {},
                      bool evaluation_mode = false);
    static void check_placements(std::size_t placements, std::size_t objects);
    static void remove_autocast(nn::Module& model);
    AccumulateScope begin_micro_batch(std::initializer_list<const nn::Module*> models);
    NoSyncScope::Guards no_sync_guards(std::initializer_list<const nn::Module*> models);
    Tensor scaled(const Tensor& loss);
    void complete_gradients(const char* op, const std::vector<Tensor>& parameters);
    void add_checkpointable(const void* object, std::shared_ptr<Checkpointable> state);
    std::optional<DType> autocast_dtype() const;

    AcceleratorOptions options_;
    std::string mixed_precision_;
    OwningPtr<AcceleratorParts> parts_;
};

}  // namespace axle::accel

namespace axle {
using accel::Accelerator;
}  // namespace axle
#include "accel/accelerator_templates.h"
