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
// On several processes (dist/process_group.h) the same loop trains one model with the data of all:
// prepare() shards the loader and has gradients averaged.
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

#include "accel/compile.h"
#include "accel/data_loader.h"
#include "accel/partial_state.h"
#include "accel/profile.h"
#include "accel/save_model.h"
#include "accel/sync_scopes.h"
#include "accel/tracker.h"
#include "core/tensor.h"
#include "core/tree.h"
#include "data/loader.h"
#include "dist/data_parallel.h"
#include "dist/operations.h"
#include "nn/module.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"
#include "optim/scheduler.h"

namespace axle::inline v0::accel {

class DeviceRates;
class Tracking;
struct StepRecord;

struct GradientAccumulationPlugin {
    std::optional<int> num_steps = {};
    // The last batch of a pass completes an update, and counting starts anew.
    bool sync_with_dataloader = true;
    // Gradients are averaged over the processes after every micro-batch.
    bool sync_each_batch = false;
};

// How far a schedule goes with each update.
enum class SchedulerSteps : std::uint8_t {
    per_process,  // a step for each process, as Accelerate: a schedule counts one process's batches
    per_update,
};

using GradScalerKwargs = optim::GradScalerOptions;

// Fields in the order of Accelerate's constructor. An empty text means "not said": then the
// environment is asked (ACCELERATE_MIXED_PRECISION, ACCELERATE_USE_CPU), then the default holds.
struct AcceleratorOptions {
    bool device_placement = true;      // move models and batches to the device
    bool split_batches = false;        // as dataloader_config's
    std::string mixed_precision = {};  // "no", "fp16" or "bf16"
    // Micro-batches per update. ACCELERATE_GRADIENT_ACCUMULATION_STEPS, which a launcher sets,
    // wins.
    int gradient_accumulation_steps = 1;
    bool cpu = false;  // else the first GPU, where there is one
    std::optional<DataLoaderConfiguration> dataloader_config = {};
    // What processes draw alike in each pass over a prepared loader: "torch", "cuda", "generator".
    std::vector<std::string> rng_types = {"generator"};
    // Trackers, by name ("tensorboard", "jsonl", "csv", "all", registered ones) or as objects.
    std::vector<LogWith> log_with = {};
    std::string project_dir = {};
    std::string logging_dir = {};  // of trackers; empty is project_dir
    std::optional<GradientAccumulationPlugin> gradient_accumulation_plugin = {};
    // false: scheduler.step() is one step of the schedule, whatever the optimizer did.
    bool step_scheduler_with_optimizer = true;
    std::optional<GradScalerKwargs> grad_scaler_kwargs = {};  // of "fp16"
    std::optional<ProfileKwargs> profile_kwargs = {};         // of profile() without an argument
    dist::DataParallelOptions ddp_kwargs = {};
    dist::ProcessGroupOptions init_process_group_kwargs = {};
    SchedulerSteps scheduler_steps = SchedulerSteps::per_process;
    // Instead of the group of all processes that the launcher started.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
    // Of that group's processes: who reads which data (accel/data_loader.h).
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
};

// State of the user's own, saved and loaded with everything else: by all processes at once, which
// may say in state_dict() what they have together. That of the main one is written.
struct Checkpointable {
    virtual ~Checkpointable() = default;
    virtual Tree state_dict() const = 0;
    virtual void load_state_dict(const Tree& state) = 0;
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
    // prepare() of a loader, with options of its own; in place of what an earlier one said.
    data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                          std::optional<bool> device_placement = {},
                                          SliceFn slice_fn_for_dispatch = {});
    // Nothing is wrapped, so this is the identity.
    template <class T>
    T& unwrap_model(T& model) {
        return model;
    }
    // Forgets what was prepared and gives cached memory back. UsageError within the loop over a
    // prepared loader.
    void free_memory();

    // --- the loop
    // Opens a micro-batch and decides whether it completes an update. If not, gradients of the
    // models named (of all, if none is) are not averaged with the other processes' yet.
    template <std::derived_from<nn::Module>... Models>
    AccumulateScope accumulate(Models&... models) {
        advance_accumulation();
        return AccumulateScope(held_back({&models...}));
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
    // dataset with indices gives each process what there is for it. Nothing for one process.
    JoinScope join_uneven_inputs(const std::vector<nn::Module*>& models,
                                 std::optional<bool> even_batches = {});
    // The loader whose loop runs, the innermost; null outside of all.
    data::DataLoader* active_dataloader() const;
    // Of its step: how many of this process's rows the pass has not had before. They come first;
    // the others only fill the batch up. `rows` itself where no loop runs or its batch has another
    // number of rows. Of several processes that read the same data, one has rows.
    std::int64_t valid_rows(std::int64_t rows) const;
    // A loader without its first batches, for the pass that goes on after a checkpoint
    // (data/loader.h).
    data::SkipDataLoader skip_first_batches(data::DataLoader& loader,
                                            std::int64_t num_batches = 0) const {
        return data::skip_first_batches(loader, num_batches);
    }
    // Of the latest micro-batch; true before the first.
    bool sync_gradients() const;
    int gradient_accumulation_steps() const;
    void set_gradient_accumulation_steps(int steps);
    // Differentiates loss / gradient_accumulation_steps, in fp16 times the scaler's scale.
    void backward(const Tensor& loss);
    // While it lives, ops of this thread run in the mixed precision. A prepared model needs none.
    AutocastGuard autocast() const;
    // Both return or act as those of optim/clip.h, on gradients that are unscaled in fp16: then
    // only where sync_gradients() (UsageError), for what is added later is not.
    Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                           double norm_type = 2);
    void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);
    // In fp16: divides gradients by the scale in place, to look at them before the step; those that
    // are unscaled already stay so.
    void unscale_gradients();
    // Whether a prepared optimizer's last step was. Reads device memory.
    bool optimizer_step_was_skipped() const;
    // Of fp16: null otherwise, or if it is not enabled. It is updated once per iteration, by what
    // all prepared optimizers have found.
    optim::GradScaler* scaler();

    // Records until the session stops or dies (accel/profile.h); without options, with those given
    // to the constructor, if any.
    [[nodiscard]] ProfileSession profile() const;
    [[nodiscard]] ProfileSession profile(ProfileKwargs options) const;

    // A step that is captured as a CUDA graph and replayed (accel/compile.h):
    //     auto step = accelerator.compile([&](Tree& batch) { ...; return loss; });
    //     for (auto& batch : loader) total += step(batch).item();
    [[nodiscard]] CompiledStep compile(std::function<Tensor(Tree&)> step,
                                       CompileOptions options = {}) {
        return CompiledStep(*this, std::move(step), options);
    }

    // --- saving
    // Objects are saved in the order of registration.
    void register_for_checkpointing(Checkpointable& object);
    // Models, optimizers, schedulers, loaders with their positions, random state, registered
    // objects and, between two updates, gradients, as one directory that appears whole or not at
    // all (accel/checkpoint.h). Taken in a loop body it resumes with the next batch. Returns the
    // path.
    std::string save_state(const std::string& directory);
    // FileError names what is missing, damaged or doesn't fit; a damaged checkpoint changes
    // nothing. UsageError within the loop over a prepared loader.
    void load_state(const std::string& directory);
    // Parameters and buffers under all of their names, as the unwrapped model has them. By all
    // processes.
    nn::StateDict get_state_dict(const nn::Module& model, bool unwrap = true) const;
    // Writes the weights alone into a folder, for any program (nn/weight_files.h): a tied one by
    // its first name. The main process writes and the others go on: wait_for_everyone() before
    // they read it.
    void save_model(const nn::Module& model, const std::string& directory,
                    const SaveModelOptions& options = {}) const;
    // Writes tensors, or a value without tensors, to a file (accel/save_model.h), on the main
    // process.
    void save(const nn::StateDict& state, const std::string& path,
              bool save_on_each_node = false) const;
    void save(const Tree& object, const std::string& path, bool save_on_each_node = false) const;

    // --- trackers (accel/tracker.h); a failing one stops neither training nor the others, unless
    // set_trouble_policy (core/log.h) says so
    // Creates and starts what log_with asks for, and hands it the configuration unless it is null.
    // init_kwargs are the options of each, by name: {{"jsonl", {{"purge_step", 40}}}}. ValueError
    // for options that a tracker doesn't have.
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
    // Finishes the trackers. The destructor does so too.
    void end_training();

    // --- processes (accel/partial_state.h)
    const PartialState& state() const { return processes_; }
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
    // On Trees or structures of tensors, as dist/operations.h says; `{...}` is a Tree.
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
    const DataLoaderConfiguration& dataloader_config() const { return loading_.config; }
    const std::string& project_dir() const { return options_.project_dir; }
    const std::string& logging_dir() const {
        return options_.logging_dir.empty() ? options_.project_dir : options_.logging_dir;
    }

  private:
    friend class CompiledStep;
    struct State;
    class Gate;
    class ActiveGate;

    // What a step changes on the host.
    struct BeforeStep {
        std::int64_t step, opened;
        bool sync_gradients;
        optim::GradScaler::ProgressMap scaler;
        std::vector<Tree> schedulers;
        std::vector<double> rates;  // of all groups: learning rate, momentum
    };

    void prepare_one(nn::Module& model);
    void prepare_one(optim::Optimizer& optimizer);
    void prepare_one(optim::Scheduler& scheduler);
    void prepare_one(data::DataLoader& loader) { prepare_data_loader(loader); }
    template <class T>
        requires(!std::is_base_of_v<nn::Module, T> && !std::is_base_of_v<optim::Optimizer, T> &&
                 !std::is_base_of_v<optim::Scheduler, T> && !std::is_base_of_v<data::DataLoader, T>)
    void prepare_one(T&) {}
    void advance_accumulation();
    void count_micro_batch();
    void unscale_to_clip(const char* op, const std::vector<Tensor>& parameters);

    // Null where there is nothing to average.
    std::unique_ptr<dist::DataParallel> replicate(nn::Module& model) const;
    dist::DataParallel* replicas_of(const nn::Module& model) const;
    NoSyncScope::Guards held_back(std::initializer_list<const nn::Module*> models);
    NoSyncScope::Guards guards_of(std::initializer_list<const nn::Module*> models);
    void share_rounding_seeds(optim::Optimizer& optimizer) const;

    // For save_state() and load_state().
    Tree own_state() const;
    void write_state(const std::string& directory, const std::vector<Tree>& own,
                     const std::vector<Tree>& custom) const;
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

    AcceleratorOptions options_;
    std::string mixed_precision_;
    PartialState processes_;
    PrepareDataLoaderOptions loading_;
    std::shared_ptr<State> state_;  // shared with the gates of prepared objects
    std::shared_ptr<Gate> gate_;
    std::vector<nn::Module*> models_;
    std::vector<std::shared_ptr<dist::DataParallel>> replicas_;  // of models_; null where alone
    std::vector<optim::Optimizer*> optimizers_;
    std::vector<optim::Scheduler*> schedulers_;
    std::vector<data::DataLoader*> loaders_;
    std::vector<Checkpointable*> custom_;
    std::unique_ptr<Tracking> tracking_;
    bool triggered_ = false;
};

}  // namespace axle::inline v0::accel

namespace axle::inline v0 {
using accel::Accelerator;
}  // namespace axle::inline v0
