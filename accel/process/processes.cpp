// What an Accelerator does because there are several processes.
#include <algorithm>
#include <utility>

#include "accel/accelerator.h"
#include "accel/process/accelerator_state.h"
#include "core/log.h"
#include "core/numerics.h"
#include "core/ops.h"
#include "core/random.h"

namespace axle::inline v0::accel {
namespace {

using Loaders = std::vector<data::DataLoader*>;

bool may_be_uneven(const data::DataLoader& loader) {
    if (loader.is_dispatched() || !loader.shard_options()) return false;
    return loader.dataset() != nullptr || loader.reads_own_shards();
}

// Those that run stay as they are.
void share_evenly(const Loaders& loaders, const Loaders& running, bool even_batches) {
    for (data::DataLoader* loader : loaders) {
        if (!may_be_uneven(*loader)) continue;
        if (std::find(running.begin(), running.end(), loader) != running.end()) continue;
        data::ShardOptions share = *loader->shard_options();
        share.even_batches = even_batches;
        loader->shard(share);
    }
}

}  // namespace

std::unique_ptr<dist::DataParallel> Accelerator::replicate(nn::Module& model) const {
    const auto parameters = model.parameters();
    const bool trains = std::any_of(parameters.begin(), parameters.end(),
                                    [](const Tensor& p) { return p.requires_grad(); });
    // In deterministic mode an update sums its micro-batches as several processes would. On a GPU
    // their order is NCCL's affair, and a captured step counts micro-batches where it is replayed.
    const bool sums_as_many =
        are_deterministic_algorithms_enabled() && state_->num_steps > 1 && device().is_cpu();
    if (!trains || !(use_distributed() || sums_as_many)) return nullptr;
    return std::make_unique<dist::DataParallel>(model, processes_.process_group(),
                                                options_.ddp_kwargs);
}

dist::DataParallel* Accelerator::replicas_of(const nn::Module& model) const {
    const auto found = std::find(models_.begin(), models_.end(), &model);
    if (found == models_.end())
        throw UsageError("Accelerator: this model has not been prepared; prepare it first");
    return replicas_[static_cast<std::size_t>(found - models_.begin())].get();
}

NoSyncScope::Guards Accelerator::guards_of(std::initializer_list<const nn::Module*> models) {
    NoSyncScope::Guards guards;
    const auto add = [&](dist::DataParallel* replicas) {
        if (replicas != nullptr) guards.push_back(std::make_unique<dist::NoSyncGuard>(*replicas));
    };
    for (const nn::Module* model : models) add(replicas_of(*model));
    if (models.size() == 0)
        for (const auto& replicas : replicas_) add(replicas.get());
    return guards;
}

NoSyncScope::Guards Accelerator::held_back(std::initializer_list<const nn::Module*> models) {
    if (state_->sync_gradients || state_->sync_each_batch) return {};
    return guards_of(models);
}

// Replicas stay alike only if they round alike.
void Accelerator::share_rounding_seeds(optim::Optimizer& optimizer) const {
    if (!use_distributed()) return;
    for (const optim::GroupRef group : optimizer.param_groups()) {
        if (!group.stochastic_rounding) continue;
        const auto words = take_random(1).block(0);
        const auto drawn = static_cast<std::int64_t>(std::uint64_t{words[1]} << 31 | words[0] >> 1);
        const Tree seed = processes_.process_group()->broadcast_object(
            group.rounding_seed ? static_cast<std::int64_t>(*group.rounding_seed) : drawn);
        group.rounding_seed = static_cast<std::uint64_t>(seed.integer());
    }
}

JoinScope Accelerator::join_uneven_inputs(const std::vector<nn::Module*>& models,
                                          std::optional<bool> even_batches) {
    if (!use_distributed()) return {};
    std::vector<dist::DataParallel*> trained;
    for (const nn::Module* model : models)
        if (dist::DataParallel* replicas = replicas_of(*model)) trained.push_back(replicas);
    std::unique_ptr<dist::Join> join;
    if (!trained.empty()) join = std::make_unique<dist::Join>(trained, dist::Join::Options());
    if (even_batches) {
        if (!std::all_of(loaders_.begin(), loaders_.end(),
                         [](const auto* loader) { return may_be_uneven(*loader); }))
            axle::log(
                LogLevel::warning,
                "join_uneven_inputs: even_batches is for loaders of datasets with indices, or "
                "with shards, that each process reads itself; another one stays as it is");
        share_evenly(loaders_, state_->active, *even_batches);
    }
    return {std::move(join), [this, even_batches] {
                if (even_batches)
                    share_evenly(loaders_, state_->active, loading_.config.even_batches);
            }};
}

bool Accelerator::check_trigger() {
    const Tensor flag = full({1}, triggered_ ? 1 : 0, {i32});
    processes_.process_group()->all_reduce(flag, dist::ReduceOp::max);
    const bool triggered = flag.item() > 0;
    if (triggered) triggered_ = false;
    return triggered;
}

}  // namespace axle::inline v0::accel
