// Accelerator: the training loop of Hugging Face Accelerate, on the very objects of the user.
//
//     axle::Accelerator accelerator({.mixed_precision = "bf16", .gradient_accumulation_steps = 4});
//     auto [model, optimizer, loader, scheduler] = accelerator.prepare(gpt, adamw, train_loader,
//     cosine); for (auto& batch : loader) {
//         auto scope = accelerator.accumulate(model);
//         auto loss = model.loss(batch["input_ids"], batch["labels"]);
//         accelerator.backward(loss);
//         if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 1.0);
//         optimizer.step();
//         scheduler.step();
//         optimizer.zero_grad();
//     }
//
// One process on one device at present.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "accel/compile.h"
#include "accel/profile.h"
#include "accel/tracker.h"
#include "core/tensor.h"
#include "core/tree.h"
#include "data/loader.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/scheduler.h"

namespace axle::inline v0::accel {

class Tracking;

struct GradientAccumulationPlugin {
    std::optional<int> num_steps = {};
    // The last batch of a pass completes an update, and counting starts anew.
    bool sync_with_dataloader = true;
};

// Fields in the order of Accelerate's constructor. An empty text means "not said": then the
// environment is asked (ACCELERATE_MIXED_PRECISION, ACCELERATE_USE_CPU), then the default holds.
struct AcceleratorOptions {
    bool device_placement = true;      // move models and batches to the device
    std::string mixed_precision = {};  // "no" or "bf16"
    // Micro-batches per update. ACCELERATE_GRADIENT_ACCUMULATION_STEPS, which a launcher sets,
    // wins.
    int gradient_accumulation_steps = 1;
    bool cpu = false;  // else the first GPU, where there is one
    // Trackers, by name ("tensorboard", "jsonl", "csv", "all", registered ones) or as objects.
    std::vector<LogWith> log_with = {};
    std::string project_dir = {};
    std::string logging_dir = {};  // of trackers; empty is project_dir
    std::optional<GradientAccumulationPlugin> gradient_accumulation_plugin = {};
    // false: scheduler.step() is one step of the schedule, whatever the optimizer did.
    bool step_scheduler_with_optimizer = true;
    std::optional<ProfileKwargs> profile_kwargs = {};  // of profile() without an argument
};

// State of the user's own, saved and loaded with everything else.
struct Checkpointable {
    virtual ~Checkpointable() = default;
    virtual Tree state_dict() const = 0;
    virtual void load_state_dict(const Tree& state) = 0;
};

// Ends with the scope of one micro-batch.
class [[nodiscard]] AccumulateScope {
  public:
    AccumulateScope() = default;
    AccumulateScope(const AccumulateScope&) = delete;
    AccumulateScope& operator=(const AccumulateScope&) = delete;
    // Not trivial, so that an unused scope draws no warning.
    ~AccumulateScope() {}  // NOLINT(modernize-use-equals-default)
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
    // Nothing is wrapped, so this is the identity.
    template <class T>
    T& unwrap_model(T& model) {
        return model;
    }
    // Forgets what was prepared and gives cached memory back.
    void free_memory();

    // --- the loop
    // Opens a micro-batch and decides whether it completes an update.
    template <class... Models>
    AccumulateScope accumulate(Models&...) {
        advance_accumulation();
        return {};
    }
    // Of the latest micro-batch; true before the first.
    bool sync_gradients() const;
    int gradient_accumulation_steps() const;
    void set_gradient_accumulation_steps(int steps);
    // Differentiates loss / gradient_accumulation_steps.
    void backward(const Tensor& loss);
    // While it lives, ops of this thread run in the mixed precision. A prepared model needs none.
    AutocastGuard autocast() const;
    // Both return or act as those of optim/clip.h.
    Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                           double norm_type = 2);
    void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);
    bool optimizer_step_was_skipped() const;

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

    // --- processes
    bool is_main_process() const { return true; }
    bool is_local_main_process() const { return true; }
    int process_index() const { return 0; }
    int num_processes() const { return 1; }
    void wait_for_everyone() const {}
    // A line on std::cout, once per server.
    template <class... Parts>
    void print(const Parts&... parts) const {
        print_line(str(parts...));
    }

    Device device() const { return device_; }
    const std::string& mixed_precision() const { return mixed_precision_; }
    const std::string& project_dir() const { return options_.project_dir; }
    const std::string& logging_dir() const {
        return options_.logging_dir.empty() ? options_.project_dir : options_.logging_dir;
    }

  private:
    friend class CompiledStep;
    struct State;
    class Gate;

    // What a step changes on the host.
    struct BeforeStep {
        std::int64_t step;
        bool sync_gradients;
        std::vector<Tree> schedulers;
        std::vector<double> rates;  // of all groups: learning rate, momentum
    };

    void prepare_one(nn::Module& model);
    void prepare_one(optim::Optimizer& optimizer);
    void prepare_one(optim::Scheduler& scheduler);
    void prepare_one(data::DataLoader& loader);
    template <class T>
        requires(!std::is_base_of_v<nn::Module, T> && !std::is_base_of_v<optim::Optimizer, T> &&
                 !std::is_base_of_v<optim::Scheduler, T> && !std::is_base_of_v<data::DataLoader, T>)
    void prepare_one(T&) {}
    static void print_line(const std::string& line);
    void advance_accumulation();

    // For compile().
    std::int64_t micro_batches() const;  // opened so far
    // Equal for steps that may share a graph: of one micro-batch, or of several.
    std::string step_kind(bool of_several) const;
    std::vector<Tensor> step_parameters() const;
    void record_step(StepRecord* record);  // from here to where null is given
    BeforeStep before_step() const;
    void rewind_step(const BeforeStep& before);
    template <class F>
    void for_each_rate(F&& f) const;
    void hand_over_hyperparameters();
    // Of parameters, buffers and optimizers: what a graph reads and writes beside the batch.
    std::vector<std::shared_ptr<Storage>> step_memory(const std::vector<Tensor>& parameters) const;
    void note_replay(const std::vector<Tensor>& parameters);  // they and buffers have changed
    std::optional<DType> autocast_dtype() const;

    AcceleratorOptions options_;
    std::string mixed_precision_;
    Device device_;
    std::shared_ptr<State> state_;  // shared with the gates of prepared objects
    std::shared_ptr<Gate> gate_;
    std::vector<nn::Module*> models_;
    std::vector<optim::Optimizer*> optimizers_;
    std::vector<optim::Scheduler*> schedulers_;
    std::vector<data::DataLoader*> loaders_;
    std::vector<Checkpointable*> custom_;
    std::unique_ptr<Tracking> tracking_;
};

}  // namespace axle::inline v0::accel

namespace axle::inline v0 {
using accel::Accelerator;
}  // namespace axle::inline v0
