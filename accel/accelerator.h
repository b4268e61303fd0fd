// Accelerator: the training loop of Hugging Face Accelerate, on the very objects of the user.
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
// On several processes (dist/group/process_group.h) the same loop trains one model with the data of
// all: prepare() shards the loader and has gradients averaged.
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
#include <type_traits>
#include <utility>
#include <vector>

#include "accel/config/options.h"
#include "accel/loop/compile.h"
#include "accel/loop/sync_scopes.h"
#include "accel/process/partial_state.h"
#include "accel/state/checkpointable.h"
#include "accel/state/save_model.h"
#include "accel/state/state_hooks.h"
#include "accel/tracking/tracker.h"
#include "accel/utils/profile.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "data/loading/loader.h"
#include "dist/group/operations.h"
#include "dist/parallel/data_parallel.h"
#include "nn/module.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::inline v0::accel {

class CheckpointWriter;
// Where an Accelerator stands, as it was when it was asked.
struct GradientState {
    bool sync_gradients = true;
    int num_steps = 1;
    bool sync_with_dataloader = true;
    // Of the innermost loop over a prepared loader; null, false and -1 outside of all.
    data::DataLoader* active_dataloader = nullptr;
    bool end_of_dataloader = false;
    std::int64_t remainder = -1;

    bool in_dataloader() const { return active_dataloader != nullptr; }
};

class DeviceRates;
class LocalSGD;
class Tracking;
struct StepRecord;

struct BackwardOptions {
    bool retain_graph = false;  // so that it can be differentiated once more
    std::optional<double> learning_rate = {};
};
struct SaveStateOptions {
    bool safe_serialization = true;  // false: a UsageError, for pickles are only read
};
struct LoadStateOptions {
    // "cpu" or "on_device", as Accelerate's (ValueError for others), and without an effect: values
    // go to where the object is.
    std::string map_location = {};
    bool strict = true;  // names that a model or its file lacks are errors
};

// Prepared objects are used, not owned: they must not move, and must live as long as the
// Accelerator is called. One thread at a time.
class Accelerator {
  public:
    // ValueError for an unknown precision, fewer than one step, an unknown tracker or one that
    // lacks a folder; UsageError where the steps are given twice.
    explicit Accelerator(AcceleratorOptions options = {});
    ~Accelerator();
    Accelerator(const Accelerator&) = delete;
    Accelerator& operator=(const Accelerator&) = delete;

    // --- preparing
    // Attaches to models, optimizers, loaders and schedulers, in any order, and returns references
    // to the same objects; whatever else is given passes through. Preparing twice changes nothing.
    template <class... T>
        requires(sizeof...(T) > 1)
    std::tuple<T&...> prepare(T&... objects) {
        (prepare_one(objects), ...);
        return {objects...};
    }
    template <class T>
    T& prepare(T& object) {
        prepare_one(object);
        return object;
    }
    // prepare() where each object has a device_placement of its own, in their order: ValueError for
    // another number of them. The state of an optimizer is always where its parameters are.
    //     accelerator.prepare({false, true}, teacher, student);
    template <class... T>
    std::tuple<T&...> prepare(std::initializer_list<bool> device_placement, T&... objects) {
        check_placements(device_placement.size(), sizeof...(T));
        const bool* placement = device_placement.begin();
        (prepare_one(objects, *placement++), ...);
        return {objects...};
    }
    // prepare() of one, with options of its own, at the first time. In evaluation_mode nothing is
    // averaged with other processes, nor broadcast.
    template <std::derived_from<nn::Module> Model>
    Model& prepare_model(Model& model, std::optional<bool> device_placement = {},
                         bool evaluation_mode = false) {
        prepare_one(model, device_placement, evaluation_mode);
        return model;
    }
    template <std::derived_from<optim::Optimizer> O>
    O& prepare_optimizer(O& optimizer, std::optional<bool> device_placement = {}) {
        prepare_one(optimizer, device_placement);
        return optimizer;
    }
    template <std::derived_from<optim::Scheduler> S>
    S& prepare_scheduler(S& scheduler) {
        prepare_one(scheduler);
        return scheduler;
    }
    // prepare() of a loader, with options of its own; in place of what an earlier one said.
    data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                          std::optional<bool> device_placement = {},
                                          SliceFn slice_fn_for_dispatch = {});
    // Nothing is wrapped, so this is the identity. Without keep_fp32_wrapper the model computes as
    // it did before prepare() from then on: no autocast, and outputs in the dtype they have.
    template <class T>
    T& unwrap_model(T& model, bool keep_fp32_wrapper = true, bool /*keep_torch_compile*/ = true) {
        if constexpr (std::is_convertible_v<T&, nn::Module&>)
            if (!keep_fp32_wrapper) drop_fp32_wrapper(model);
        return model;
    }
    // Whether the model is spread over several devices, counting the meta device, where offloaded
    // weights are. Such a model can't be prepared on several processes (ValueError), unless
    // ACCELERATE_BYPASS_DEVICE_MAP is true.
    bool verify_device_map(const nn::Module& model) const;
    // Forgets what was prepared and gives cached memory back. UsageError within the loop over a
    // prepared loader.
    void free_memory();
    // And destroys what these own: std::unique_ptr, std::shared_ptr, std::optional.
    template <class... Owners>
        requires(sizeof...(Owners) > 0)
    void free_memory(Owners&... owners) {
        free_memory();
        (owners.reset(), ...);
        free_memory();  // what has become free
    }
    template <class... Owners>
    void clear(Owners&... owners) {
        free_memory(owners...);
    }

    // --- the loop
    // Opens a micro-batch and decides whether it completes an update. If not, gradients of the
    // models named (of all, if none is) are not averaged with the other processes' yet.
    template <std::derived_from<nn::Module>... Models>
    AccumulateScope accumulate(Models&... models) {
        advance_accumulation();
        return AccumulateScope(held_back({&models...}), end_of_micro_batch());
    }
    // A scope in which gradients of the models named (of all, if none is) stay with this process.
    template <std::derived_from<nn::Module>... Models>
    NoSyncScope no_sync(Models&... models) {
        return NoSyncScope(guards_of({&models...}));
    }
    // For the backward of a forward that ran under no_sync.
    SyncScope trigger_sync_in_backward(nn::Module& model) { return SyncScope(replicas_of(model)); }
    // A scope in which processes may have different numbers of batches (dist::Join). even_batches
    // takes the place of that of the configuration meanwhile: false, and each prepared loader of a
    // dataset with indices, or with shards, gives each process what there is for it. Nothing for
    // one process.
    JoinScope join_uneven_inputs(const std::vector<nn::Module*>& models,
                                 std::optional<bool> even_batches = {});
    // The loader whose loop runs, the innermost; null outside of all.
    data::DataLoader* active_dataloader() const;
    // Of its step: how many of this process's rows the pass has not had before. They come first;
    // the others only fill the batch up. `rows` itself where no loop runs or its batch has another
    // number of rows. Of several processes that read the same data, one has rows.
    std::int64_t valid_rows(std::int64_t rows) const;
    // A loader without its first batches, for the pass that goes on after a checkpoint
    // (data/loading/loader.h).
    data::SkipDataLoader skip_first_batches(data::DataLoader& loader,
                                            std::int64_t num_batches = 0) const {
        return data::skip_first_batches(loader, num_batches);
    }
    // Of the latest micro-batch; true before the first.
    bool sync_gradients() const;
    // Until the next micro-batch.
    void set_sync_gradients(bool sync);
    // Micro-batches since the counting began anew.
    std::int64_t step() const;
    GradientState gradient_state() const;
    int gradient_accumulation_steps() const;
    void set_gradient_accumulation_steps(int steps);
    // Differentiates loss / gradient_accumulation_steps, in fp16 times the scaler's scale. With a
    // learning rate it is lomo_backward() of that.
    void backward(const Tensor& loss, const BackwardOptions& options = {});
    // Of a loss that is a sum of `weight` parts, such as tokens: an update's gradients are those of
    // the sum of all its losses, of all micro-batches and processes, over the sum of their weights,
    // whatever the number of either. They are as soon as the backward that completes the update has
    // ended; until then they are sums. Zero where nothing weighs anything. In fp16 the scale goes
    // down by about as much as a sum is larger than a mean. UsageError for losses with a weight and
    // without one in the same update, and within a captured step (which then runs eagerly).
    void backward(const Tensor& loss_sum, double weight);
    // `weight` is one number, which isn't read on the host.
    void backward(const Tensor& loss_sum, const Tensor& weight);
    // Instead of backward() and step(): prepared LOMO optimizers update each parameter as soon as
    // its gradient is final (optim/lomo.h), on several processes when backward is over, by
    // everybody's mean. Every call is an update, of this very loss. ValueError without a learning
    // rate, and without such an optimizer; UsageError under the scaler of fp16.
    void lomo_backward(const Tensor& loss, std::optional<double> learning_rate);
    // While it lives, ops of this thread run in the mixed precision, or not, with a handler that is
    // not enabled; without mixed precision nothing changes. A prepared model needs none.
    AutocastGuard autocast() const;
    AutocastGuard autocast(const AutocastKwargs& autocast_handler) const;
    // Where sequences are not cut across processes, these do nothing.
    ContextParallelScope maybe_context_parallel(const std::vector<Tensor>& buffers = {},
                                                const std::vector<int>& buffer_seq_dims = {},
                                                const std::vector<Tensor>& no_restore_buffers = {});
    data::DataLoader& deepspeed_ulysses_dl_adapter(data::DataLoader& loader, nn::Module& model);
    // Both return or act as those of optim/clip.h, on gradients that are unscaled in fp16. Only
    // where sync_gradients() (UsageError): what is added later would not be clipped.
    Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                           double norm_type = 2);
    void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);
    // In fp16: divides gradients by the scale in place, to look at them before the step; those that
    // are unscaled already stay so.
    void unscale_gradients();
    void unscale_gradients(optim::Optimizer& optimizer);
    // Whether a prepared optimizer's last step was. Reads device memory.
    bool optimizer_step_was_skipped() const;
    // Of mixed_precision "fp8" (accel/precision/fp8.h): whether it is in force on this device, by
    // which recipe, whether one was asked for, and whether its scales follow several processes'
    // models.
    bool fp8_enabled() const { return mixed_precision_ == "fp8"; }
    Fp8Backend fp8_backend() const;
    bool has_fp8_handler() const;
    bool delayed_fp8_autocast() const;
    // Of fp16: null otherwise, or if it is not enabled. It is updated once per iteration, by what
    // all prepared optimizers have found.
    optim::GradScaler* scaler();

    // Records until the session stops or dies (accel/utils/profile.h); without options, with those
    // given to the constructor, if any.
    [[nodiscard]] ProfileSession profile() const;
    [[nodiscard]] ProfileSession profile(ProfileKwargs options) const;

    // A step that is captured as a CUDA graph and replayed (accel/loop/compile.h):
    //     auto step = accelerator.compile([&](Tree& batch) { ...; return loss; });
    //     for (auto& batch : loader) total += step(batch).item();
    [[nodiscard]] CompiledStep compile(std::function<Tensor(Tree&)> step,
                                       CompileOptions options = {}) {
        return CompiledStep(*this, std::move(step), options);
    }

    // --- saving
    // Objects are saved in the order of registration: those that are Checkpointable, modules, and
    // what else has a state_dict() that gives a Tree and a load_state_dict(). Used, not owned, and
    // in spite of free_memory().
    template <Registrable... T>
    void register_for_checkpointing(T&... objects) {
        (register_one(objects), ...);
    }
    // ValueError names those that are null.
    void register_for_checkpointing(const std::vector<Checkpointable*>& objects);
    // Models, optimizers, schedulers, loaders with their positions, random state, registered
    // objects and, between two updates, gradients, as one directory that appears whole or not at
    // all (accel/state/checkpoint.h). Taken in a loop body it resumes with the next batch. Returns
    // the path.
    //
    // With automatic_checkpoint_naming (accel/state/project.h) the directory is not asked for;
    // ValueError if there is one of that name. Without, it must be given (ValueError), and replaces
    // a checkpoint of that name.
    std::string save_state(const std::string& output_dir = {}, SaveStateOptions options = {});
    // FileError names what is missing, damaged or doesn't fit; a damaged checkpoint changes
    // nothing. UsageError within the loop over a prepared loader. Without a directory, the newest
    // that automatic naming has written (ValueError without automatic naming). Also of a directory
    // that Accelerate's save_state has written, but for random states and positions of loaders.
    // Returns the path.
    std::string load_state(const std::string& input_dir = {}, const LoadStateOptions& options = {});
    // Called in the order of registration (accel/state/state_hooks.h).
    HookHandle register_save_state_pre_hook(SaveStatePreHook hook);
    HookHandle register_load_state_pre_hook(LoadStatePreHook hook);
    // The number of the next state: one more with each that is saved, and behind that of one that
    // is loaded.
    std::int64_t save_iteration() const { return project_.iteration; }
    void set_save_iteration(std::int64_t iteration);
    // Parameters and buffers under all of their names, as the unwrapped model has them. By all
    // processes.
    nn::StateDict get_state_dict(const nn::Module& model, bool unwrap = true) const;
    // Writes the weights alone into a folder, for any program (nn/files/weight_files.h): a tied one
    // by its first name. The main process writes and the others go on: wait_for_everyone() before
    // they read it.
    void save_model(const nn::Module& model, const std::string& directory,
                    const SaveModelOptions& options = {}) const;
    // Writes tensors, or a value without tensors, to a file (accel/state/save_model.h), on the main
    // process. As save_model, on each machine's with the project's save_on_each_node.
    void save(const nn::StateDict& state, const std::string& path,
              bool save_on_each_node = false) const;
    void save(const Tree& object, const std::string& path, bool save_on_each_node = false) const;

    // --- trackers (accel/tracking/tracker.h); a failing one stops neither training nor the others,
    // unless set_error_policy (core/log.h) says so Creates and starts what log_with asks for, and
    // hands it the configuration unless it is null. init_kwargs are the options of each, by name:
    // {{"jsonl", {{"purge_step", 40}}}}. ValueError for options that a tracker doesn't have.
    void init_trackers(const std::string& project_name, const Tree& config = {},
                       const Tree& init_kwargs = {});
    // To every tracker, a map of values. log_kwargs are more options of each, by name.
    void log(const Tree& values, std::optional<std::int64_t> step = {},
             const Tree& log_kwargs = {});
    // A tracker whose failures are reported and forgotten, or the very object with `unwrap`; valid
    // until the next init_trackers. Without any trackers, one that does nothing; ValueError for a
    // name that isn't among them.
    Tracker& get_tracker(const std::string& name, bool unwrap = false);
    std::vector<Tracker*> trackers() const;
    // Finishes the trackers, as the destructor does, and lets go of the other processes
    // (PartialState::destroy_process_group), unless dist::launch has started this one. What a
    // program does last.
    void end_training();

    // --- processes (accel/process/partial_state.h)
    const AcceleratorState& state() const { return processes_; }
    bool is_main_process() const { return processes_.is_main_process(); }
    bool is_local_main_process() const { return processes_.is_local_main_process(); }
    bool is_last_process() const { return processes_.is_last_process(); }
    int process_index() const { return processes_.process_index(); }
    int local_process_index() const { return processes_.local_process_index(); }
    int num_processes() const { return processes_.num_processes(); }
    bool use_distributed() const { return processes_.use_distributed(); }
    DistributedType distributed_type() const { return processes_.distributed_type(); }
    void wait_for_everyone() const { processes_.wait_for_everyone(); }
    ProcessFirst main_process_first() const { return processes_.main_process_first(); }
    ProcessFirst local_main_process_first() const { return processes_.local_main_process_first(); }
    template <class F>
    auto on_main_process(F&& f) const {
        return processes_.on_main_process(std::forward<F>(f));
    }
    template <class F>
    auto on_local_main_process(F&& f) const {
        return processes_.on_local_main_process(std::forward<F>(f));
    }
    template <class F>
    auto on_last_process(F&& f) const {
        return processes_.on_last_process(std::forward<F>(f));
    }
    template <class F>
    auto on_process(int process_index, F&& f) const {
        return processes_.on_process(process_index, std::forward<F>(f));
    }
    template <class F>
    auto on_local_process(int local_process_index, F&& f) const {
        return processes_.on_local_process(local_process_index, std::forward<F>(f));
    }
    template <class T>
    auto split_between_processes(const T& inputs, bool apply_padding = false) const {
        return processes_.split_between_processes(inputs, apply_padding);
    }
    // On Trees or structures of tensors, as dist/group/operations.h says; `{...}` is a Tree.
    template <class T = Tree>
    T gather(const T& value) const {
        return dist::gather(*processes_.process_group(), value);
    }
    // gather() of what a step has made of its batch, without the rows of samples that the pass has
    // had before: all rows of an evaluation, each once, in the order of the dataset. Tensors
    // without a row for each sample come whole. With use_gather_object, or where there is more than
    // tensors, as gather_object, of which lists with an element for each sample are cut alike.
    Tree gather_for_metrics(const Tree& input, bool use_gather_object = false) const;
    template <StructuredType T>
    T gather_for_metrics(const T& input, bool use_gather_object = false) const {
        return dist::through_members(
            input, [&](const Tree& tree) { return gather_for_metrics(tree, use_gather_object); });
    }
    template <class T = Tree>
    T reduce(const T& value, std::string_view reduction = "sum", double scale = 1) const {
        return dist::reduce(*processes_.process_group(), value, reduction, scale);
    }
    template <class T = Tree>
    T pad_across_processes(const T& value, std::int64_t dim = 0, double pad_index = 0,
                           bool pad_first = false) const {
        return dist::pad_across_processes(*processes_.process_group(), value, dim, pad_index,
                                          pad_first);
    }
    // A line on std::cout, once per machine.
    template <class... Parts>
    void print(const Parts&... parts) const {
        processes_.print(parts...);
    }
    // A flag that any process may raise and all see: check_trigger() is called by all of them, and
    // lowers it again.
    void set_trigger() { triggered_ = true; }
    bool check_trigger();

    Device device() const { return processes_.device(); }
    const std::string& mixed_precision() const { return mixed_precision_; }
    // Whether there is an autocast of its own.
    bool native_amp() const { return autocast_dtype().has_value(); }
    // Several processes, each with a GPU.
    bool multi_device() const { return distributed_type() == DistributedType::multi_gpu; }
    // Where save_model() has something to write.
    bool should_save_model() const {
        return options_.parallelism_config || is_local_main_process();
    }
    // As they were given, with what the environment adds.
    const AcceleratorOptions& options() const { return options_; }
    const DataLoaderConfiguration& dataloader_config() const { return loading_.config; }
    const ProjectConfiguration& project_configuration() const { return project_; }
    const std::string& project_dir() const { return project_.project_dir; }
    const std::string& logging_dir() const { return project_.logging_dir; }
    bool split_batches() const { return loading_.config.split_batches; }
    std::optional<bool> dispatch_batches() const { return loading_.config.dispatch_batches; }
    bool even_batches() const { return loading_.config.even_batches; }
    // Of loaders that are prepared from now on.
    void set_even_batches(bool even) { loading_.config.even_batches = even; }
    bool use_seedable_sampler() const { return loading_.config.use_seedable_sampler; }
    bool non_blocking() const { return loading_.config.non_blocking; }
    bool use_stateful_dataloader() const { return loading_.config.use_stateful_dataloader; }
    // Null where there is none.
    const dist::DeviceMesh* torch_device_mesh() const { return loading_.device_mesh.get(); }
    // Where this process is along a dimension of the mesh ("tp", "pp", "cp", "dp_replicate",
    // "dp_shard"), 0 in one that it doesn't have. UsageError where there is neither a
    // parallelism_config nor a device_mesh.
    int tensor_parallel_rank() const { return mesh_rank("tensor_parallel_rank", "tp"); }
    int pipeline_parallel_rank() const { return mesh_rank("pipeline_parallel_rank", "pp"); }
    int context_parallel_rank() const { return mesh_rank("context_parallel_rank", "cp"); }
    int data_parallel_rank() const { return mesh_rank("data_parallel_rank", "dp_replicate"); }
    int data_parallel_shard_rank() const {
        return mesh_rank("data_parallel_shard_rank", "dp_shard");
    }

  private:
    friend class CompiledStep;
    friend class LocalSGD;
    struct State;
    struct StateHooks;
    struct LoadedState;
    class Gate;
    class ActiveGate;

    // What a step changes on the host.
    struct BeforeStep {
        std::int64_t step, opened, window;
        bool sync_gradients;
        optim::GradScaler::ProgressMap scaler;
        std::vector<Tree> schedulers;
        std::vector<double> rates;  // of all groups: learning rate, momentum
    };

    using Placement = std::optional<bool>;
    void prepare_one(nn::Module& model, Placement placement = {}, bool evaluation_mode = false);
    void prepare_one(optim::Optimizer& optimizer, Placement = {});
    void prepare_one(optim::Scheduler& scheduler, Placement = {});
    void prepare_one(data::DataLoader& loader, Placement placement = {}) {
        prepare_data_loader(loader, placement);
    }
    template <class T>
        requires(!std::is_base_of_v<nn::Module, T> && !std::is_base_of_v<optim::Optimizer, T> &&
                 !std::is_base_of_v<optim::Scheduler, T> && !std::is_base_of_v<data::DataLoader, T>)
    void prepare_one(T&, Placement = {}) {}
    static void check_placements(std::size_t placements, std::size_t objects);
    void refuse_device_map(const nn::Module& model) const;
    static void drop_fp32_wrapper(nn::Module& model);
    // Of a dimension of the mesh; 0 and 1 where there is none.
    int mesh_rank(const char* getter, const char* dimension) const;
    int mesh_size(const char* dimension) const;
    void advance_accumulation();
    std::function<void()> end_of_micro_batch() const;
    void look_at_prepared();
    Tensor scaled(const Tensor& loss);
    void complete_to_clip(const char* op, const std::vector<Tensor>& parameters);

    // Null where there is nothing to average.
    std::unique_ptr<dist::DataParallel> replicate(nn::Module& model) const;
    dist::DataParallel* replicas_of(const nn::Module& model) const;
    NoSyncScope::Guards held_back(std::initializer_list<const nn::Module*> models);
    NoSyncScope::Guards guards_of(std::initializer_list<const nn::Module*> models);
    void share_rounding_seeds(optim::Optimizer& optimizer) const;

    // For save_state() and load_state().
    template <class T>
    void register_one(T& object) {
        if (is_registered(&object)) return;
        if constexpr (std::derived_from<T, Checkpointable>)
            custom_.push_back(
                {&object, std::shared_ptr<Checkpointable>(std::shared_ptr<void>(), &object)});
        else if constexpr (std::derived_from<T, nn::Module>)
            custom_.push_back({&object, state_of(object)});
        else
            custom_.push_back({&object, std::make_shared<StatefulObject<T>>(object)});
    }
    bool is_registered(const void* object) const;
    static std::shared_ptr<Checkpointable> state_of(nn::Module& module);
    std::string next_state(const std::string& output_dir);
    std::string newest_state() const;
    Tree own_state() const;
    void run_save_hooks(std::vector<nn::StateDict>& weights, const std::string& directory) const;
    void write_state(CheckpointWriter& writer, const std::vector<nn::StateDict>& weights,
                     const std::vector<Tree>& own, const std::vector<Tree>& custom) const;
    LoadedState read_state(const std::string& directory) const;
    void read_own(LoadedState& state) const;
    void take_state(const LoadedState& state, const LoadStateOptions& options);
    template <class F>
    void together(const char* what, F&& f) const;

    // For compile().
    std::int64_t micro_batches() const;  // opened so far
    // Equal for steps that may share a graph: of one micro-batch, or of several.
    std::string step_kind(bool of_several) const;
    std::vector<Tensor> step_parameters() const;
    BeforeStep before_step() const;
    void rewind_counts(const BeforeStep& before);
    void rewind_step(const BeforeStep& before);
    template <class F>
    void for_each_rate(F&& f) const;
    optim::Scheduler* schedule_of(const optim::Optimizer& optimizer) const;
    DeviceRates* device_rates_of(optim::Optimizer& optimizer);
    // Around a capture.
    void begin_recording(StepRecord& record);
    void end_recording(StepRecord& record);
    // Around a replay. One that can't be is to run eagerly.
    bool can_replay(const StepRecord& record);
    void before_replay(const StepRecord& record);
    void after_replay(const StepRecord& record, const std::vector<Tensor>& parameters);
    // Of parameters, buffers and optimizers: what a graph reads and writes beside the batch.
    std::vector<std::shared_ptr<Storage>> step_memory(const std::vector<Tensor>& parameters) const;
    std::optional<DType> autocast_dtype() const;
    void begin_fp8();
    void convert_to_fp8(nn::Module& model) const;

    AcceleratorOptions options_;
    AcceleratorState processes_;
    std::string mixed_precision_;
    ProjectConfiguration project_;
    PrepareDataLoaderOptions loading_;
    std::shared_ptr<State> state_;  // shared with the gates of prepared objects
    std::shared_ptr<Gate> gate_;
    std::vector<nn::Module*> models_;
    std::vector<std::shared_ptr<dist::DataParallel>> replicas_;  // of models_; null where alone
    std::vector<optim::Optimizer*> optimizers_;
    std::vector<optim::Scheduler*> schedulers_;
    std::vector<data::DataLoader*> loaders_;
    // What loaders were seeded with before, in the order of their preparation.
    std::vector<std::pair<std::shared_ptr<data::Generator>, std::uint64_t>> seeds_;
    struct Registered {
        const void* object;
        std::shared_ptr<Checkpointable> state;
    };
    std::vector<Registered> custom_;
    std::shared_ptr<StateHooks> hooks_;
    std::unique_ptr<Tracking> tracking_;
    bool triggered_ = false;
};

}  // namespace axle::inline v0::accel

namespace axle::inline v0 {
using accel::Accelerator;
}  // namespace axle::inline v0
