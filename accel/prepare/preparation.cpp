#include "accel/prepare/preparation.h"

#include <algorithm>
#include <type_traits>
#include <typeinfo>

#include "accel/config/environment.h"
#include "accel/prepare/pipeline_model.h"
#include "accel/prepare/training_hooks.h"
#include "core/files/file.h"
#include "core/random.h"
#include "core/system/log.h"
#include "core/system/numerics.h"
#include "core/text/type_name.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "optim/clip.h"

namespace axle::accel {
namespace {

using Loaders = std::vector<data::DataLoader*>;

template <class T>
bool contains(const std::vector<T*>& list, const T& object) {
    return std::find(list.begin(), list.end(), &object) != list.end();
}

bool can_be_uneven(const data::DataLoader& loader) {
    if (loader.is_dispatched() || !loader.shard_options()) return false;
    return loader.dataset() != nullptr || loader.reads_own_shards();
}

// Sets even_batches of all loaders that can have uneven batches and have no running loop.
void set_even_batches(const Loaders& loaders, const Loaders& running, bool even_batches) {
    for (data::DataLoader* loader : loaders) {
        const std::optional<data::ShardOptions>& options = loader->shard_options();
        if (!options || !can_be_uneven(*loader)) continue;
        if (std::find(running.begin(), running.end(), loader) != running.end()) continue;
        data::ShardOptions share = *options;
        share.even_batches = even_batches;
        loader->shard(share);
    }
}

void check_on_one_device(const nn::Module& model) {
    if (!is_on_several_devices(model)) return;
    if (flag_variable("ACCELERATE_BYPASS_DEVICE_MAP").value_or(false)) return;
    throw ValueError(
        "prepare: a model that is spread over several devices can't be prepared on several "
        "processes; move it to one device first");
}

// Logs a warning about parameters that were neither made trainable nor frozen, such as zeros({2}).
void warn_of_untrained(const nn::Module& model) {
    std::string names;
    for (const auto& [name, tensor] : model.named_parameters())
        if (!tensor.impl()->autograd) names += (names.empty() ? "" : ", ") + in_quotes(name);
    if (!names.empty())
        log(LogLevel::warning,
            str("prepare: these parameters do not require a gradient and are not trained: ", names,
                "; create them with {.requires_grad = true}, or name them with v.buffer()"));
}

}  // namespace

bool is_on_several_devices(const nn::Module& model) {
    const auto parameters = model.parameters();
    return std::any_of(parameters.begin(), parameters.end(), [&](const Tensor& parameter) {
        return parameter.device() != parameters.front().device();
    });
}

void drop_autocast(nn::Module& model) {
    if (model.hooks() == nullptr) return;
    auto hooks = std::make_shared<nn::ForwardHooks>(*model.hooks());
    hooks->autocast.reset();
    model.set_hooks(std::move(hooks));
}

Preparation::Preparation(PreparationOptions options, const PartialState& processes,
                         std::shared_ptr<LoopState> loop)
    : options_(std::move(options)),
      processes_(processes),
      loop_(std::move(loop)),
      hooks_(std::make_shared<TrainingHooks>(loop_, *this)) {}

// Prepared objects may outlive the Preparation: then no later micro-batch completes an update, so
// step() must not wait for one.
Preparation::~Preparation() {
    hooks_->drop_owner();
    loop_->accumulation.end_update();
    loop_->has_updated = false;
}

// --- the lists

// Adds an object to a list unless the list contains it. Returns whether it was added.
template <class T>
bool Preparation::add(std::vector<T*>& list, const char* kind, T& object) {
    if (contains(list, object)) return false;
    names_[&object] = str(kind, ' ', list.size(), " (", type_name(typeid(object)), ')');
    list.push_back(&object);
    if constexpr (!std::is_same_v<T, data::DataLoader>) lost_.clear();
    lost_.reserve(lost_.size() + names_.size());  // lose() must not throw
    return true;
}

void Preparation::lose(const void* object) {
    if (auto name = names_.extract(object)) lost_.push_back(std::move(name.mapped()));
}

void Preparation::forget(const nn::Module& model) {
    const auto found = std::find(models_.begin(), models_.end(), &model);
    if (found == models_.end()) return;
    replicas_.erase(replicas_.begin() + (found - models_.begin()));
    models_.erase(found);
    lose(&model);
}
void Preparation::forget(const optim::Optimizer& optimizer) {
    std::erase(optimizers_, &optimizer);
    unchecked_.erase(&optimizer);
    max_grad_norms_.erase(&optimizer);
    lose(&optimizer);
    ++revision_;
}
void Preparation::forget(const optim::Scheduler& scheduler) {
    std::erase(schedulers_, &scheduler);
    lose(&scheduler);
    ++revision_;
}
// Removes a loader, unless prepare() is replacing its hooks. Does not record it as lost for
// check_complete(), because a loader has no state after its last loop.
void Preparation::forget(const data::DataLoader& loader) {
    if (prepared_again_ == &loader) return;
    std::erase(loaders_, &loader);
    names_.erase(&loader);
}

void Preparation::replace(const nn::Module& from, nn::Module& to) {
    const auto found = std::find(models_.begin(), models_.end(), &from);
    if (found == models_.end()) return;
    *found = &to;
    if (const auto& replicas = replicas_[static_cast<std::size_t>(found - models_.begin())])
        replicas->set_model(to);
    rename(&from, &to);
}

void Preparation::replace(const data::DataLoader& from, data::DataLoader& to) {
    for (data::DataLoader*& loader : loaders_)
        if (loader == &from) loader = &to;
    rename(&from, &to);
}

void Preparation::rename(const void* from, const void* to) {
    if (auto name = names_.extract(from)) {
        name.key() = to;
        names_.insert(std::move(name));
    }
}

void Preparation::check_complete(const char* op) const {
    if (lost_.empty()) return;
    std::string names;
    for (const std::string& name : lost_) names += (names.empty() ? "" : ", ") + name;
    throw UsageError(
        str(op, ": a prepared object was destroyed or prepared by another Accelerator: ", names,
            "; call free_memory() and prepare the remaining objects"));
}

// --- models

void Preparation::prepare(nn::Module& model, std::optional<bool> device_placement,
                          bool evaluation_mode) {
    if (contains(models_, model)) return;
    if (processes_.use_distributed()) check_on_one_device(model);
    model.check_visit();
    if (!evaluation_mode && processes_.is_main_process()) warn_of_untrained(model);
    if (options_.fp8) convert_to_fp8(model, *options_.fp8);
    if (!evaluation_mode) divide(model);
    const bool moves = device_placement.value_or(options_.device_placement);
    // A sharded model is moved unit by unit, because it may be too large for the device.
    const bool is_sharded = !evaluation_mode && options_.sharding && processes_.use_distributed();
    if (moves && !is_sharded) model.to(processes_.device());
    auto hooks = std::make_shared<nn::ForwardHooks>();
    hooks->observer = hooks_;
    hooks->autocast = options_.autocast_dtype;
    hooks->context = options_.context;
    hooks->cache_enabled = options_.autocast_cache_enabled;
    hooks->outputs_to_f32 = options_.outputs_to_f32;
    if (!evaluation_mode) hooks->output_dtype = options_.output_dtype;
    const std::shared_ptr<dist::DistributedModel> replicas =
        evaluation_mode ? nullptr : distribute(model);
    if (moves && is_sharded)
        model.to(processes_.device());  // moves the tensors that are not sharded
    if (replicas)  // a weak reference, because the model can outlive the replicas
        hooks->before_forward = [weak = std::weak_ptr(replicas)](nn::Module&) {
            if (const auto alive = weak.lock()) alive->before_forward();
        };
    replicas_.push_back(replicas);
    add(models_, "model", model);
    model.set_hooks(std::move(hooks));
}

std::unique_ptr<dist::DistributedModel> Preparation::distribute(nn::Module& model) const {
    const auto parameters = model.parameters();
    const bool trains = std::any_of(parameters.begin(), parameters.end(),
                                    [](const Tensor& p) { return p.requires_grad(); });
    // In deterministic mode, one process adds the gradients of micro-batches in the same order as
    // several processes do. GPUs are excluded, because NCCL chooses the order there.
    const bool adds_like_processes = are_deterministic_algorithms_enabled() &&
                                     loop_->accumulation.options().num_steps > 1 &&
                                     processes_.device().is_cpu();
    if (options_.pipeline) return options_.pipeline(model);
    if (options_.sharding && processes_.use_distributed())
        if (auto sharding = options_.sharding(model)) {
            check_without_state(model);
            return std::make_unique<dist::ShardedDataParallel>(model, std::move(sharding->group),
                                                               std::move(sharding->options));
        }
    if (!trains || !(data_parallel_size() > 1 || adds_like_processes)) return nullptr;
    return std::make_unique<dist::DataParallel>(
        model, options_.data_group ? options_.data_group : processes_.process_group(),
        options_.data_parallel);
}

dist::DistributedModel* Preparation::replicas_of(const char* op, const nn::Module& model) const {
    const auto found = std::find(models_.begin(), models_.end(), &model);
    if (found == models_.end())
        throw UsageError(str(op, ": this model has not been prepared; prepare it first"));
    return replicas_[static_cast<std::size_t>(found - models_.begin())].get();
}

NoSyncScope::Guards Preparation::no_sync_guards(
    const char* op, std::initializer_list<const nn::Module*> models) const {
    auto guards = std::make_shared<std::vector<std::unique_ptr<dist::NoSyncGuard>>>();
    const auto add = [&](dist::DistributedModel* replicas) {
        if (replicas != nullptr) guards->push_back(std::make_unique<dist::NoSyncGuard>(*replicas));
    };
    for (const nn::Module* model : models) add(replicas_of(op, *model));
    if (models.size() == 0)
        for (const auto& replicas : replicas_) add(replicas.get());
    if (guards->empty()) return nullptr;
    return guards;
}

JoinScope Preparation::join(const std::vector<nn::Module*>& models,
                            std::optional<bool> even_batches) {
    if (!processes_.use_distributed()) return {};
    std::vector<dist::DataParallel*> trained;
    for (const nn::Module* model : models)
        if (dist::DistributedModel* const distributed = replicas_of("join_uneven_inputs", *model)) {
            trained.push_back(dynamic_cast<dist::DataParallel*>(distributed));
            if (trained.back() == nullptr)
                throw UsageError(str("join_uneven_inputs: the model ", type_name(typeid(*model)),
                                     " is sharded or has a pipeline; leave it out, and give its "
                                     "processes the same number of batches"));
        }
    OwningPtr<dist::Join> join;
    if (!trained.empty()) join = make_owning<dist::Join>(trained, dist::Join::Options());
    if (even_batches) {
        if (!std::all_of(loaders_.begin(), loaders_.end(),
                         [](const auto* loader) { return can_be_uneven(*loader); }))
            log(LogLevel::warning,
                "join_uneven_inputs: even_batches applies only to loaders that each process reads "
                "itself, of map-style or sharded datasets; other loaders stay as they are");
        accel::set_even_batches(loaders_, loop_->accumulation.active_loaders(), *even_batches);
    }
    const bool joins_scaling = join && loop_->scaling;
    if (joins_scaling) loop_->scaling->begin_join(*trained.front());
    return {std::move(join), [this, even_batches, joins_scaling](std::optional<int> last) {
                if (even_batches)
                    accel::set_even_batches(loaders_, loop_->accumulation.active_loaders(),
                                            options_.loading.config.even_batches);
                if (joins_scaling) loop_->scaling->end_join(last);
            }};
}

// --- optimizers and schedulers

void Preparation::prepare(optim::Optimizer& optimizer) {
    if (!add(optimizers_, "optimizer", optimizer)) return;
    optimizer.set_hooks(hooks_);
    if (options_.optimizers) {
        const auto options = options_.optimizers();
        if (options.max_grad_norm) max_grad_norms_[&optimizer] = *options.max_grad_norm;
        if (!options.state_folder.empty()) optimizer.offload_states(options.state_folder);
    }
    share_rounding_seeds(optimizer);
    if (processes_.use_distributed()) unchecked_.insert(&optimizer);
    if (loop_->scaling) loop_->scaling->add(optimizer);
    ++revision_;
}

void Preparation::check_first_step(optim::Optimizer& optimizer) {
    if (unchecked_.erase(&optimizer) == 0 || !processes_.is_main_process()) return;
    std::unordered_set<const Impl*> prepared;
    for (const nn::Module* model : models_)
        for (const Tensor& parameter : model->parameters()) prepared.insert(parameter.impl().get());
    const auto parameters = optimizer.parameters();
    const auto count =
        std::count_if(parameters.begin(), parameters.end(), [&](const Tensor& parameter) {
            return parameter.requires_grad() && !prepared.contains(parameter.impl().get());
        });
    if (count != 0)
        log(LogLevel::warning, str("prepare: ", count, count == 1 ? " parameter" : " parameters",
                                   " of the optimizer ", count == 1 ? "belongs" : "belong",
                                   " to no prepared model, so ", count == 1 ? "its" : "their",
                                   " gradients are not averaged; pass the model to prepare() too"));
}

void Preparation::clip_gradients(optim::Optimizer& optimizer) const {
    const auto found = max_grad_norms_.find(&optimizer);
    if (found == max_grad_norms_.end()) return;
    const std::vector<Tensor> parameters = optimizer.parameters();
    if (loop_->scaling) loop_->scaling->unscale(parameters);
    if (dist::Pipeline* const pipeline = find_pipeline(*this, parameters))
        pipeline->clip_grad_norm_(found->second);
    else
        optim::clip_grad_norm_(parameters, found->second);
}

// Sets the rounding seed of rank 0 on all processes, for groups with stochastic rounding. Otherwise
// processes would round with different random numbers, and the replicas would differ.
void Preparation::share_rounding_seeds(optim::Optimizer& optimizer) const {
    if (!processes_.use_distributed()) return;
    for (const optim::GroupRef group : optimizer.param_groups()) {
        if (!group.stochastic_rounding) continue;
        const auto words = take_random(1).block(0);
        const auto drawn = static_cast<std::int64_t>(std::uint64_t{words[1]} << 31 | words[0] >> 1);
        const Tree seed = processes_.process_group()->broadcast_object(
            group.rounding_seed ? static_cast<std::int64_t>(*group.rounding_seed) : drawn);
        group.rounding_seed = static_cast<std::uint64_t>(seed.integer());
    }
}

void Preparation::prepare(optim::Scheduler& scheduler) {
    if (!add(schedulers_, "scheduler", scheduler)) return;
    scheduler.set_hooks(hooks_);
    ++revision_;
}

void Preparation::update_division() {
    loop_->accumulation.division().set_objects(models_, replicas_, optimizers_);
}

// --- loaders

void Preparation::prepare(data::DataLoader& loader, std::optional<bool> device_placement,
                          SliceFn slice_fn_for_dispatch) {
    const bool has_options = device_placement || slice_fn_for_dispatch;
    if (contains(loaders_, loader) && !has_options) return;
    PrepareDataLoaderOptions options = options_.loading;
    options.put_on_device = device_placement.value_or(options.put_on_device);
    options.slice_fn_for_dispatch = std::move(slice_fn_for_dispatch);
    const auto generator = loader.generator();
    const std::uint64_t seed = generator ? generator->initial_seed() : 0;
    shard_or_dispatch(loader, processes_.process_group(), options);
    loader.set_micro_batches(1);
    if (add(loaders_, "loader", loader) && generator) seeds_.emplace_back(generator, seed);
    prepared_again_ = &loader;
    loader.set_hooks(std::make_shared<ActiveLoaderHooks>(loop_, hooks_, processes_.process_group(),
                                                         std::move(options)));
    prepared_again_ = nullptr;
}

void Preparation::clear() {
    loop_->recorder.clear();
    if (loop_->scaling) {
        loop_->scaling->clear();
        for (optim::Optimizer* optimizer : optimizers_) optimizer->set_scalars({});
    }
    ++revision_;
    hooks_->drop_owner();
    for (nn::Module* model : models_) model->set_hooks(nullptr);
    for (optim::Optimizer* optimizer : optimizers_) optimizer->set_hooks(nullptr);
    for (optim::Scheduler* scheduler : schedulers_) scheduler->set_hooks(nullptr);
    for (data::DataLoader* loader : loaders_) {
        loader->shard(std::nullopt);
        loader->set_hooks(nullptr);
    }
    // Restores in reverse order, so that the seed from before the first preparation is set last. If
    // loaders share a generator, only the first of them has recorded its original seed.
    std::for_each(seeds_.rbegin(), seeds_.rend(),
                  [](const auto& before) { before.first->manual_seed(before.second); });
    models_.clear();
    replicas_.clear();
    optimizers_.clear();
    unchecked_.clear();
    max_grad_norms_.clear();
    schedulers_.clear();
    loaders_.clear();
    seeds_.clear();
    names_.clear();
    lost_.clear();
    hooks_ = std::make_shared<TrainingHooks>(loop_, *this);
    loop_->accumulation.reset();
    loop_->has_updated = false;
}

}  // namespace axle::accel
