#include "accel/accelerator.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "accel/accelerator_state.h"
#include "accel/step_record.h"
#include "accel/tracking.h"
#include "core/autocast.h"
#include "core/autograd.h"
#include "core/cuda.h"
#include "core/memory.h"
#include "core/ops.h"
#include "optim/clip.h"

namespace axle::inline v0::accel {
namespace {

std::optional<std::string> environment(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    return text;
}

int positive_steps(const char* who, int steps) {
    if (steps < 1)
        throw ValueError(str(who, ": gradient accumulation needs at least one step: ", steps));
    return steps;
}

int accumulation_steps(const AcceleratorOptions& options) {
    const auto& plugin = options.gradient_accumulation_plugin;
    if (plugin) {
        if (options.gradient_accumulation_steps != 1)
            throw UsageError(
                "Accelerator: gradient_accumulation_steps and "
                "gradient_accumulation_plugin are both given; use one");
        return positive_steps("Accelerator", plugin->num_steps.value_or(1));
    }
    const auto text = environment("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
    if (!text) return positive_steps("Accelerator", options.gradient_accumulation_steps);
    int steps = 0;
    const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), steps);
    if (error != std::errc() || *stop != '\0')
        throw ValueError(
            str("ACCELERATE_GRADIENT_ACCUMULATION_STEPS: not a whole number: '", *text, "'"));
    return positive_steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", steps);
}

std::string precision(const AcceleratorOptions& options) {
    std::string name = options.mixed_precision;
    if (name.empty()) name = environment("ACCELERATE_MIXED_PRECISION").value_or("no");
    if (name == "no" || name == "fp16" || name == "bf16") return name;
    throw ValueError(str("Accelerator: mixed_precision must be no, fp16 or bf16: '", name, "'"));
}

PrepareDataLoaderOptions loading(const AcceleratorOptions& options, Device device) {
    PrepareDataLoaderOptions loading{.device = device, .put_on_device = options.device_placement};
    loading.config = options.dataloader_config.value_or(DataLoaderConfiguration());
    if (options.split_batches && options.dataloader_config && !loading.config.split_batches)
        throw UsageError(
            "Accelerator: split_batches is true and dataloader_config.split_batches is not; say "
            "it there alone");
    loading.config.split_batches = loading.config.split_batches || options.split_batches;
    loading.rng_types.clear();
    for (const std::string& name : options.rng_types) loading.rng_types.push_back(rng_type(name));
    loading.device_mesh = options.device_mesh;
    return loading;
}

template <class T>
bool add_once(std::vector<T*>& list, T& object) {
    if (std::find(list.begin(), list.end(), &object) != list.end()) return false;
    list.push_back(&object);
    return true;
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : options_(std::move(options)),
      mixed_precision_(precision(options_)),
      processes_({.cpu = options_.cpu,
                  .init_process_group_kwargs = options_.init_process_group_kwargs,
                  .process_group = options_.process_group}),
      loading_(loading(options_, device())),
      state_(std::make_shared<State>()),
      tracking_(std::make_unique<Tracking>(options_.log_with, logging_dir(), is_main_process())) {
    state_->num_steps = accumulation_steps(options_);
    if (const auto& plugin = options_.gradient_accumulation_plugin) {
        state_->sync_with_dataloader = plugin->sync_with_dataloader;
        state_->sync_each_batch = plugin->sync_each_batch;
    }
    if (!loading_.config.split_batches && options_.scheduler_steps == SchedulerSteps::per_process)
        state_->scheduler_steps = num_processes();
    state_->step_scheduler_with_optimizer = options_.step_scheduler_with_optimizer;
    const GradScalerKwargs scaler = options_.grad_scaler_kwargs.value_or(GradScalerKwargs());
    if (mixed_precision_ == "fp16" && scaler.enabled)
        state_->scaling = std::make_unique<LossScaling>(scaler, device());
    if (state_->scaling && use_distributed())  // all skip a step or none does
        state_->scaling->scaler().set_found_inf_hook(
            [group = processes_.process_group()](const Tensor& found_inf) {
                group->all_reduce(found_inf, dist::ReduceOp::max);
            });
    gate_ = std::make_shared<Gate>(state_);
}

Accelerator::~Accelerator() = default;

std::optional<DType> Accelerator::autocast_dtype() const {
    if (mixed_precision_ == "bf16") return bf16;
    if (mixed_precision_ == "fp16") return f16;
    return std::nullopt;
}

void Accelerator::prepare_one(nn::Module& model) {
    if (!add_once(models_, model)) return;
    if (options_.device_placement) model.to(device());
    auto gate = std::make_shared<nn::Gate>();
    gate->autocast = autocast_dtype();
    replicas_.push_back(replicate(model));
    if (replicas_.back())  // which the model may outlive
        gate->before_forward = [weak = std::weak_ptr(replicas_.back())](nn::Module&) {
            if (const auto replicas = weak.lock()) replicas->before_forward();
        };
    model.set_gate(std::move(gate));
}

void Accelerator::prepare_one(optim::Optimizer& optimizer) {
    if (!add_once(optimizers_, optimizer)) return;
    optimizer.set_gate(gate_);
    share_rounding_seeds(optimizer);
    if (state_->scaling) state_->scaling->add(optimizer);
    ++state_->preparations;
}

void Accelerator::prepare_one(optim::Scheduler& scheduler) {
    if (!add_once(schedulers_, scheduler)) return;
    scheduler.set_gate(gate_);
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
    share_out(loader, processes_.process_group(), options);
    add_once(loaders_, loader);
    loader.set_gate(
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
    for (nn::Module* model : models_) model->set_gate(nullptr);
    for (optim::Optimizer* optimizer : optimizers_) optimizer->set_gate(nullptr);
    for (optim::Scheduler* scheduler : schedulers_) scheduler->set_gate(nullptr);
    for (data::DataLoader* loader : loaders_) {
        loader->shard(std::nullopt);
        loader->set_gate(nullptr);
    }
    models_.clear();
    replicas_.clear();
    optimizers_.clear();
    schedulers_.clear();
    loaders_.clear();
    state_->step = 0;
    state_->sync_gradients = true;
    host_memory::empty_cache();
    if (device().is_cuda()) cuda::empty_cache(device().index);
}

// --- the loop

void Accelerator::advance_accumulation() {
    if (state_->scaling) state_->scaling->begin_iteration();
    count_micro_batch();
}

void Accelerator::count_micro_batch() {
    ++state_->opened;
    if (state_->record != nullptr) ++state_->record->accumulations;
    if (state_->sync_with_dataloader && state_->end_of_dataloader()) {
        state_->step = 0;
        state_->sync_gradients = true;
        return;
    }
    ++state_->step;
    state_->sync_gradients = state_->step % state_->num_steps == 0;
}

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

void Accelerator::backward(const Tensor& loss) {
    const int n = state_->num_steps;
    const Tensor part = n == 1 ? loss : loss / static_cast<double>(n);
    if (!state_->scaling) return part.backward();
    state_->scaling->before_backward();
    state_->scaling->scaler().scale(part).backward();
}

AutocastGuard Accelerator::autocast() const {
    return AutocastGuard(autocast_dtype() ? autocast_dtype() : axle::autocast_dtype());
}

Tensor Accelerator::clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                    double norm_type) {
    unscale_to_clip("clip_grad_norm_", parameters);
    return optim::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
    unscale_to_clip("clip_grad_value_", parameters);
    optim::clip_grad_value_(parameters, clip_value);
}

void Accelerator::unscale_to_clip(const char* op, const std::vector<Tensor>& parameters) {
    if (!state_->scaling) return;
    if (!state_->sync_gradients)
        throw UsageError(str(op,
                             ": in fp16 gradients are clipped when they are complete: if "
                             "(accelerator.sync_gradients())"));
    state_->scaling->unscale(parameters);
}

void Accelerator::unscale_gradients() {
    if (state_->scaling) state_->scaling->unscale_all();
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
void Accelerator::end_training() { tracking_->finish(); }

// --- saving

void Accelerator::register_for_checkpointing(Checkpointable& object) { add_once(custom_, object); }

}  // namespace axle::inline v0::accel
