// Private to accel: Preparation, which prepares an Accelerator's objects and refers to them, and
// helpers for models.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accel/loading/data_loader.h"
#include "accel/loop/loop_state.h"
#include "accel/loop/sync_scopes.h"
#include "accel/precision/resolve_fp8.h"
#include "accel/prepare/preparable.h"
#include "accel/process/partial_state.h"
#include "data/loading/loader.h"
#include "dist/parallel/data_parallel.h"
#include "dist/sharding/sharding_options.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

// The group of processes that a model is sharded over, and the options of the sharding.
struct ModelSharding {
    std::shared_ptr<dist::ProcessGroup> group;
    dist::ShardingOptions options;
};

struct PreparationOptions {
    bool device_placement = true;  // whether models are moved to the device
    // The dtype in which prepared models run under autocast, or nullopt without autocast.
    std::optional<DType> autocast_dtype = {};
    std::optional<bool> autocast_cache_enabled = {};
    bool outputs_to_f32 = true;
    // The dtype of floating outputs of trained models (nn::ForwardHooks).
    std::optional<DType> output_dtype = {};
    dist::DataParallelOptions data_parallel = {};
    // Returns how a model is sharded over the processes, or nullopt for data parallel training. May
    // change the model before it is sharded. If empty, no model is sharded.
    std::function<std::optional<ModelSharding>(nn::Module&)> sharding = {};
    // Divides a model or its experts among processes (tensor or expert parallel training), before
    // the model is moved. If empty, no model is divided.
    std::function<void(nn::Module&)> division = {};
    // The processes over which gradients are averaged, or nullptr for all processes.
    std::shared_ptr<dist::ProcessGroup> data_group = {};
    // Divides a model into the stages of a pipeline. If empty, there are no pipelines.
    std::function<std::unique_ptr<dist::DistributedModel>(nn::Module&)> pipeline = {};
    // The options of a prepared optimizer.
    struct OptimizerOptions {
        // The norm to which step() clips gradients, as in DeepSpeed, or nullopt for no clipping.
        std::optional<double> max_grad_norm = {};
        std::string state_folder = {};  // the folder of Optimizer::offload_states()
    };
    std::function<OptimizerOptions()> optimizers = {};  // if empty, the defaults apply
    PrepareDataLoaderOptions loading = {};
    // The context of calls of prepared models, or nullptr.
    std::shared_ptr<ForwardContext> context = {};
    std::optional<Fp8Plan> fp8 = {};
};

// The prepared models, optimizers, schedulers and loaders, each in the order of preparation, and
// the hooks attached to them. Refers to `processes`, `loop` and the prepared objects. An object is
// removed when it is destroyed or prepared by another Accelerator. Must not move, because scopes
// refer to it. Used by one thread.
class Preparation {
  public:
    Preparation(PreparationOptions options, const PartialState& processes,
                std::shared_ptr<LoopState> loop);

    ~Preparation();
    Preparation(const Preparation&) = delete;
    Preparation& operator=(const Preparation&) = delete;

    // Prepare an object and attach hooks to it. An object that is already prepared is not changed.
    // The optimizer or schedule of a placeholder must exist. For a model, throw ValueError if it is
    // on several devices and there are several processes (unless ACCELERATE_BYPASS_DEVICE_MAP is
    // true). Throw UsageError if it is to be sharded or divided and a prepared optimizer has a
    // state of its parameters. Also throw the errors of Module::check_visit() and of
    // PreparationOptions' functions.
    void prepare(const PrepareItem& item, bool evaluation_mode);
    void prepare(nn::Module& model, std::optional<bool> device_placement = {},
                 bool evaluation_mode = false);
    void prepare(optim::Optimizer& optimizer);
    void prepare(optim::Scheduler& scheduler);
    // Prepares a loader. A prepared loader is prepared again only if an option is given.
    void prepare(data::DataLoader& loader, std::optional<bool> device_placement = {},
                 SliceFn slice_fn_for_dispatch = {});
    // Remove an object that is destroyed or prepared by another Accelerator; only its address is
    // used. Called by the hooks. check_complete() reports removed models, optimizers and schedulers
    // until another one is prepared.
    void forget(const nn::Module& model);
    void forget(const optim::Optimizer& optimizer);
    void forget(const optim::Scheduler& scheduler);
    void forget(const data::DataLoader& loader);
    // Called by the hooks before the first step of a prepared optimizer. If there are several
    // processes, logs a warning on the main process if parameters that require a gradient belong to
    // no prepared model, because their gradients are then not averaged over processes. prepare()
    // cannot check this, because models may be prepared after their optimizers.
    void check_first_step(optim::Optimizer& optimizer);
    // Replace the address of an object that was moved. Called by the hooks.
    void replace(const nn::Module& from, nn::Module& to);
    void replace(const data::DataLoader& from, data::DataLoader& to);
    // Throws UsageError with the names of the objects that were removed; see forget().
    void check_complete(const char* op) const;
    // Detaches all hooks, ends the sharding of the loaders and restores their seeds, removes the
    // references to the objects, and resets the state of the current update.
    void clear();

    const std::vector<nn::Module*>& models() const { return models_; }
    const std::vector<optim::Optimizer*>& optimizers() const { return optimizers_; }
    const std::vector<optim::Scheduler*>& schedulers() const { return schedulers_; }
    const std::vector<data::DataLoader*>& loaders() const { return loaders_; }
    // Returns one element per model of models(), which is nullptr if the gradients of the model are
    // not averaged.
    const std::vector<std::shared_ptr<dist::DistributedModel>>& replicas() const {
        return replicas_;
    }
    // Returns the number of changes of the lists of optimizers and schedulers.
    int revision() const { return revision_; }
    // Clips the gradients of an optimizer if its steps have a maximum norm. Called by the hooks.
    void clip_gradients(optim::Optimizer& optimizer) const;

    // Returns the options for loaders that are prepared later.
    const PrepareDataLoaderOptions& loading() const { return options_.loading; }
    // Returns the number of processes over which gradients are averaged.
    int data_parallel_size() const {
        return options_.data_group ? options_.data_group->size() : processes_.num_processes();
    }
    Fp8Backend fp8_backend() const { return options_.fp8 ? options_.fp8->backend : Fp8Backend::NO; }
    void set_even_batches(bool even) { options_.loading.config.even_batches = even; }

    // Returns the replicas of a prepared model, or nullptr if its gradients are not averaged.
    // Throws UsageError, with a message that begins with `op`, for a model that is not prepared.
    dist::DistributedModel* replicas_of(const char* op, const nn::Module& model) const;
    // Returns guards that suspend gradient averaging for the models, or for all models if the list
    // is empty, or nullptr if no gradients are averaged. Throws the UsageError of replicas_of().
    NoSyncScope::Guards no_sync_guards(const char* op,
                                       std::initializer_list<const nn::Module*> models) const;
    // Implements Accelerator::join_uneven_inputs().
    JoinScope join(const std::vector<nn::Module*>& models, std::optional<bool> even_batches);
    // Passes the current models and optimizers to the gradient division.
    void update_division();

  private:
    template <class T>
    bool add(std::vector<T*>& list, const char* kind, T& object);
    void lose(const void* object);
    void rename(const void* from, const void* to);
    std::unique_ptr<dist::DistributedModel> distribute(nn::Module& model) const;
    void divide(nn::Module& model) const;
    void check_without_state(const nn::Module& model) const;
    void share_rounding_seeds(optim::Optimizer& optimizer) const;

    PreparationOptions options_;
    const PartialState& processes_;
    std::shared_ptr<LoopState> loop_;
    std::shared_ptr<class TrainingHooks> hooks_;
    std::vector<nn::Module*> models_;
    std::vector<std::shared_ptr<dist::DistributedModel>> replicas_;
    std::vector<optim::Optimizer*> optimizers_;
    std::vector<optim::Scheduler*> schedulers_;
    std::vector<data::DataLoader*> loaders_;
    // The loaders' generators with their seeds before preparation, in the order of preparation.
    std::vector<std::pair<std::shared_ptr<data::Generator>, std::uint64_t>> seeds_;
    std::unordered_map<const void*, std::string> names_;  // such as "model 0 (Net)"
    std::vector<std::string> lost_;                       // the names that check_complete() reports
    // The norms to which steps of optimizers clip their gradients.
    std::unordered_map<const optim::Optimizer*, double> max_grad_norms_;
    // The optimizers before their first step, if there are several processes.
    std::unordered_set<const optim::Optimizer*> unchecked_;
    const data::DataLoader* prepared_again_ = nullptr;
    int revision_ = 0;
};

// Returns whether the model's parameters are on several devices, including the meta device.
bool is_on_several_devices(const nn::Module& model);
// Turns off autocast and the conversion of outputs to f32 for a prepared model.
void drop_autocast(nn::Module& model);

}  // namespace axle::accel
