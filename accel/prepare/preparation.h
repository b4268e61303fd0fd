// Private to accel: Preparation, which prepares an Accelerator's objects and refers to them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accel/loading/data_loader.h"
#include "accel/loop/loop_state.h"
#include "accel/loop/sync_scopes.h"
#include "accel/precision/resolve_fp8.h"
#include "accel/process/partial_state.h"
#include "data/loading/loader.h"
#include "dist/parallel/data_parallel.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/schedules/scheduler.h"

namespace axle::accel {

struct PreparationOptions {
    bool device_placement = true;              // models are moved to the device
    std::optional<DType> autocast_dtype = {};  // dtype of prepared models; nullopt: no autocast
    std::optional<bool> autocast_cache_enabled = {};
    bool outputs_to_f32 = true;
    dist::DataParallelOptions data_parallel = {};
    PrepareDataLoaderOptions loading = {};
    std::optional<Fp8Plan> fp8 = {};
};

// The prepared models, optimizers, schedulers and loaders, each in the order of preparation, and
// the hooks attached to them. Refers to the objects, `processes` and `loop`; it must not move,
// because scopes refer to it. Used by one thread.
class Preparation {
  public:
    Preparation(PreparationOptions options, const PartialState& processes,
                std::shared_ptr<LoopState> loop);

    // Attach hooks. An object that is prepared already stays as it is.
    void prepare(nn::Module& model, std::optional<bool> device_placement = {},
                 bool evaluation_mode = false);
    void prepare(optim::Optimizer& optimizer);
    void prepare(optim::Scheduler& scheduler);
    // Prepares a loader again if an option is given.
    void prepare(data::DataLoader& loader, std::optional<bool> device_placement = {},
                 SliceFn slice_fn_for_dispatch = {});
    // Detaches all hooks, restores the loaders' seeds and forgets the objects.
    void clear();

    const std::vector<nn::Module*>& models() const { return models_; }
    const std::vector<optim::Optimizer*>& optimizers() const { return optimizers_; }
    const std::vector<optim::Scheduler*>& schedulers() const { return schedulers_; }
    const std::vector<data::DataLoader*>& loaders() const { return loaders_; }
    // Returns the replicas of models(), with nullptr for models whose gradients are not averaged.
    const std::vector<std::shared_ptr<dist::DataParallel>>& replicas() const { return replicas_; }
    // The number of changes to the optimizers and schedulers so far.
    int revision() const { return revision_; }

    // Returns the options of loaders that are prepared from now on.
    const PrepareDataLoaderOptions& loading() const { return options_.loading; }
    Fp8Backend fp8_backend() const { return options_.fp8 ? options_.fp8->backend : Fp8Backend::NO; }
    void set_even_batches(bool even) { options_.loading.config.even_batches = even; }

    // Returns the replicas of a prepared model, or nullptr. Throws UsageError for other models.
    dist::DataParallel* replicas_of(const nn::Module& model) const;
    // Suspends gradient averaging for the models, or for all if none is given.
    NoSyncScope::Guards no_sync_guards(std::initializer_list<const nn::Module*> models) const;
    // Implements Accelerator::join_uneven_inputs().
    JoinScope join(const std::vector<nn::Module*>& models, std::optional<bool> even_batches);
    // Gives the gradient division the current models and optimizers.
    void update_division();

  private:
    std::unique_ptr<dist::DataParallel> replicate(nn::Module& model) const;
    void share_rounding_seeds(optim::Optimizer& optimizer) const;

    PreparationOptions options_;
    const PartialState& processes_;
    std::shared_ptr<LoopState> loop_;
    std::shared_ptr<class TrainingHooks> hooks_;
    std::vector<nn::Module*> models_;
    std::vector<std::shared_ptr<dist::DataParallel>> replicas_;
    std::vector<optim::Optimizer*> optimizers_;
    std::vector<optim::Scheduler*> schedulers_;
    std::vector<data::DataLoader*> loaders_;
    // The loaders' generators and their seeds before preparation, in the order of preparation.
    std::vector<std::pair<std::shared_ptr<data::Generator>, std::uint64_t>> seeds_;
    int revision_ = 0;
};

// Returns whether the model's parameters are on several devices, including the meta device.
bool is_on_several_devices(const nn::Module& model);
// Makes a prepared model compute without autocast and keep the dtype of its outputs.
void drop_autocast(nn::Module& model);

}  // namespace axle::accel
