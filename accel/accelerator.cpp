#include "accel/accelerator.h"

#include <algorithm>

#include "accel/config/resolve_options.h"
#include "accel/config/resolve_plugins.h"
#include "accel/loop/step_record.h"
#include "accel/process/accelerator_state.h"
#include "accel/state/saved_state.h"
#include "accel/tracking/tracking.h"
#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/cuda.h"
#include "core/memory/memory.h"
#include "core/ops.h"

namespace axle::inline v0::accel {
namespace {

template <class T>
bool add_once(std::vector<T*>& list, T& object) {
    if (std::find(list.begin(), list.end(), &object) != list.end()) return false;
    list.push_back(&object);
    return true;
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : options_(resolved(std::move(options))),
      processes_({.cpu = options_.cpu,
                  .init_process_group_kwargs = options_.init_process_group_kwargs,
                  .process_group = options_.process_group},
                 precision(options_), !options_.mixed_precision.empty()),
      mixed_precision_(processes_.mixed_precision()),
      project_(project(options_)),
      loading_(loading(options_, device())),
      state_(std::make_shared<State>()),
      tracking_(std::make_unique<Tracking>(options_.log_with, logging_dir(), is_main_process())) {
    check_plugins(options_, num_processes());
    if (is_main_process()) explain_dynamo(options_);
    loading_.device_mesh = mesh_of(options_, processes_.process_group());
    state_->num_steps = accumulation_steps(options_);
    if (const auto& plugin = options_.gradient_accumulation_plugin) {
        state_->sync_with_dataloader = plugin->sync_with_dataloader;
        state_->sync_each_batch = plugin->sync_each_batch;
        state_->adjust_scheduler = plugin->adjust_scheduler.value_or(false);
        state_->short_window = plugin->short_window;
    }
    if (!loading_.config.split_batches && options_.scheduler_steps == SchedulerSteps::per_process)
        state_->scheduler_steps = num_processes();
    state_->step_scheduler_with_optimizer = options_.step_scheduler_with_optimizer;
    begin_fp8();
    const GradScalerKwargs scaler = options_.grad_scaler_kwargs.value_or(GradScalerKwargs());
    if (mixed_precision_ == "fp16" && scaler.enabled)
        state_->scaling = std::make_unique<LossScaling>(scaler, device());
    if (state_->scaling && use_distributed())  // all skip a step or none does
        state_->scaling->scaler().set_found_inf_hook(
            [group = processes_.process_group()](const Tensor& found_inf) {
                group->all_reduce(found_inf, dist::ReduceOp::max);
            });
    gate_ = std::make_shared<Gate>(state_);
    hooks_ = std::make_shared<StateHooks>();
}

Accelerator::~Accelerator() = default;

std::optional<DType> Accelerator::autocast_dtype() const {
    if (mixed_precision_ == "bf16" || mixed_precision_ == "fp8") return bf16;
    if (mixed_precision_ == "fp16") return f16;
    return std::nullopt;
}

void Accelerator::prepare_one(nn::Module& model, Placement placement, bool evaluation_mode) {
    if (use_distributed()) refuse_device_map(model);
    if (!add_once(models_, model)) return;
    convert_to_fp8(model);
    if (placement.value_or(options_.device_placement)) model.to(device());
    auto gate = std::make_shared<nn::ForwardHooks>();
    const AutocastKwargs autocast = options_.autocast_kwargs.value_or(AutocastKwargs());
    if (autocast.enabled) gate->autocast = autocast_dtype();
    gate->cache_enabled = autocast.cache_enabled;
    gate->outputs_to_f32 = options_.convert_outputs_to_fp32;
    replicas_.push_back(evaluation_mode ? nullptr : replicate(model));
    if (replicas_.back())  // which the model may outlive
        gate->before_forward = [weak = std::weak_ptr(replicas_.back())](nn::Module&) {
            if (const auto replicas = weak.lock()) replicas->before_forward();
        };
    model.set_hooks(std::move(gate));
}

void Accelerator::prepare_one(optim::Optimizer& optimizer, Placement) {
    if (!add_once(optimizers_, optimizer)) return;
    optimizer.set_hooks(gate_);
    share_rounding_seeds(optimizer);
    if (state_->scaling) state_->scaling->add(optimizer);
    ++state_->preparations;
}

void Accelerator::prepare_one(optim::Scheduler& scheduler, Placement) {
    if (!add_once(schedulers_, scheduler)) return;
    scheduler.set_hooks(gate_);
    ++state_->preparations;
}

data::DataLoader& Accelerator::prepare_data_loader(data::DataLoader& loader,
                                                   std::optional<bool> device_placement,
                                                   SliceFn slice_fn_for_dispatch) {
    const bool again = device_placement || slice_fn_for_dispatch;
    const bool is_prepared = std::find(loaders_.begin(), loaders_.end(), &loader) != loaders_.end();
    if (is_prepared && !again) return loader;
    PrepareDataLoaderOptions options = loading_;
    options.put_on_device = device_placement.value_or(options.put_on_device);
    options.slice_fn_for_dispatch = std::move(slice_fn_for_dispatch);
    const auto generator = loader.generator();
    const std::uint64_t seed = generator ? generator->initial_seed() : 0;
    share_out(loader, processes_.process_group(), options);
    if (add_once(loaders_, loader) && generator) seeds_.emplace_back(generator, seed);
    loader.set_hooks(
        std::make_shared<ActiveGate>(state_, processes_.process_group(), std::move(options)));
    return loader;
}

void Accelerator::free_memory() {
    if (!state_->active.empty())
        throw UsageError("free_memory: not within the loop over a prepared loader; leave it first");
    for (const auto& rates : state_->rates) rates->settle();
    state_->rates.clear();
    if (state_->scaling) {
        state_->scaling->clear();
        for (optim::Optimizer* optimizer : optimizers_) optimizer->set_scalars({});
    }
    ++state_->preparations;
    for (nn::Module* model : models_) model->set_hooks(nullptr);
    for (optim::Optimizer* optimizer : optimizers_) optimizer->set_hooks(nullptr);
    for (optim::Scheduler* scheduler : schedulers_) scheduler->set_hooks(nullptr);
    for (data::DataLoader* loader : loaders_) {
        loader->shard(std::nullopt);
        loader->set_hooks(nullptr);
    }
    std::for_each(seeds_.rbegin(), seeds_.rend(),  // the first of those who share one has the word
                  [](const auto& before) { before.first->manual_seed(before.second); });
    models_.clear();
    replicas_.clear();
    optimizers_.clear();
    schedulers_.clear();
    loaders_.clear();
    seeds_.clear();
    state_->division.clear();
    state_->step = 0;
    state_->window = 0;
    state_->sync_gradients = true;
    host_memory::empty_cache();
    if (device().is_cuda()) cuda::empty_cache(device().index);
}

// --- the loop

data::DataLoader* Accelerator::active_dataloader() const {
    return state_->active.empty() ? nullptr : state_->active.back();
}

std::int64_t Accelerator::valid_rows(std::int64_t rows) const {
    const data::DataLoader* loader = active_dataloader();
    if (loading_.device_mesh && !data_rank(*loading_.device_mesh).is_first) return 0;
    return loader != nullptr && loader->batch_samples() == rows ? loader->valid_samples() : rows;
}

bool Accelerator::sync_gradients() const { return state_->sync_gradients; }
int Accelerator::gradient_accumulation_steps() const { return state_->num_steps; }
void Accelerator::set_gradient_accumulation_steps(int steps) {
    state_->num_steps = positive_steps("Accelerator", steps);
}

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
    return state_->scaling ? &state_->scaling->scaler() : nullptr;
}

bool Accelerator::optimizer_step_was_skipped() const {
    return std::any_of(optimizers_.begin(), optimizers_.end(),
                       [](const optim::Optimizer* o) { return o->step_was_skipped(); });
}

ProfileSession Accelerator::profile() const {
    return profile(options_.profile_kwargs.value_or(ProfileKwargs()));
}

ProfileSession Accelerator::profile(ProfileKwargs options) const {
    return ProfileSession(std::move(options), process_index(), [this] { wait_for_everyone(); });
}

// --- trackers

void Accelerator::init_trackers(const std::string& project_name, const Tree& config,
                                const Tree& init_kwargs) {
    tracking_->init(project_name, config, init_kwargs);
}
void Accelerator::log(const Tree& values, std::optional<std::int64_t> step,
                      const Tree& log_kwargs) {
    tracking_->log(values, step, log_kwargs);
}
Tracker& Accelerator::get_tracker(const std::string& name, bool unwrap) {
    return tracking_->get(name, unwrap);
}
std::vector<Tracker*> Accelerator::trackers() const { return tracking_->trackers(); }

void Accelerator::end_training() {
    tracking_->finish();
    // A launcher within the program looks after its processes itself.
    if (dist::process_variable("FORK_LAUNCHED") != "1") processes_.destroy_process_group();
}

}  // namespace axle::inline v0::accel
