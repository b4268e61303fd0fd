#include "accel/accelerator.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <map>
#include <unordered_set>

#include "accel/checkpoint.h"
#include "accel/tracking.h"
#include "core/autocast.h"
#include "core/autograd.h"
#include "core/cuda.h"
#include "core/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/safetensors.h"
#include "optim/clip.h"

namespace axle::inline v0::accel {

// What decides whether a micro-batch completes an update.
struct Accelerator::State {
    bool sync_gradients = true;
    std::int64_t step = 0;    // micro-batches since the last update
    std::int64_t opened = 0;  // micro-batches ever
    int num_steps = 1;
    bool sync_with_dataloader = true;
    bool step_scheduler_with_optimizer = true;
    bool device_placement = true;
    Device device;
    std::int64_t iteration = 0;             // of the next save
    std::vector<data::DataLoader*> active;  // loaders whose loops run, the innermost last
    StepRecord* record = nullptr;           // of the step that is being captured

    bool end_of_dataloader() const { return !active.empty() && active.back()->end_of_dataloader(); }
};

// What prepared objects ask. They own it, so that they may outlive the Accelerator.
class Accelerator::Gate : public optim::OptimizerGate,
                          public optim::SchedulerGate,
                          public data::LoaderGate {
  public:
    explicit Gate(std::shared_ptr<State> state) : state_(std::move(state)) {}

    bool allows_step(optim::Optimizer& optimizer) override {
        if (state_->record != nullptr && state_->sync_gradients)
            state_->record->optimizer_steps(optimizer);
        return state_->sync_gradients;
    }
    bool allows_zero_grad(optim::Optimizer&) override { return state_->sync_gradients; }

    void step(optim::Scheduler& scheduler) override {
        if (state_->record != nullptr) state_->record->schedulers.push_back(&scheduler);
        if (!state_->step_scheduler_with_optimizer) return scheduler.advance();
        if (!state_->sync_gradients) return;
        const auto total = scheduler.total_steps();
        if (total && scheduler.step_count() > *total) return;
        scheduler.advance();
    }

    void begin(data::DataLoader& loader) override { state_->active.push_back(&loader); }
    void batch(data::DataLoader&, Tree& batch) override {
        if (!state_->device_placement || state_->device.is_cpu()) return;
        batch = map_tensors(
            batch, [&](const Tensor& t) { return Tree(t.to(state_->device, t.is_pinned())); });
    }
    void end(data::DataLoader& loader) noexcept override { std::erase(state_->active, &loader); }

  private:
    std::shared_ptr<State> state_;
};

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
    if (name == "no" || name == "bf16") return name;
    throw ValueError(str("Accelerator: mixed_precision must be no or bf16: '", name, "'"));
}

Device chosen_device(const AcceleratorOptions& options) {
    const std::string use_cpu = environment("ACCELERATE_USE_CPU").value_or("");
    const bool cpu = options.cpu || use_cpu == "1" || use_cpu == "true" || use_cpu == "True";
    return cpu || !cuda::is_available() ? Device::cpu() : Device::cuda();
}

template <class T>
bool add_once(std::vector<T*>& list, T& object) {
    if (std::find(list.begin(), list.end(), &object) != list.end()) return false;
    list.push_back(&object);
    return true;
}

// "model", "model_1", ...
std::string numbered(const char* stem, std::size_t i) { return i == 0 ? stem : str(stem, "_", i); }

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : options_(std::move(options)),
      mixed_precision_(precision(options_)),
      device_(chosen_device(options_)),
      state_(std::make_shared<State>()),
      tracking_(std::make_unique<Tracking>(options_.log_with, logging_dir(), true)) {
    state_->num_steps = accumulation_steps(options_);
    if (options_.gradient_accumulation_plugin)
        state_->sync_with_dataloader = options_.gradient_accumulation_plugin->sync_with_dataloader;
    state_->step_scheduler_with_optimizer = options_.step_scheduler_with_optimizer;
    state_->device_placement = options_.device_placement;
    state_->device = device_;
    gate_ = std::make_shared<Gate>(state_);
}

Accelerator::~Accelerator() = default;

std::optional<DType> Accelerator::autocast_dtype() const {
    if (mixed_precision_ == "bf16") return bf16;
    return std::nullopt;
}

void Accelerator::prepare_one(nn::Module& model) {
    if (!add_once(models_, model)) return;
    if (options_.device_placement) model.to(device_);
    auto gate = std::make_shared<nn::Gate>();
    gate->autocast = autocast_dtype();
    model.set_gate(std::move(gate));
}

void Accelerator::prepare_one(optim::Optimizer& optimizer) {
    if (add_once(optimizers_, optimizer)) optimizer.set_gate(gate_);
}

void Accelerator::prepare_one(optim::Scheduler& scheduler) {
    if (add_once(schedulers_, scheduler)) scheduler.set_gate(gate_);
}

void Accelerator::prepare_one(data::DataLoader& loader) {
    if (add_once(loaders_, loader)) loader.set_gate(gate_);
}

void Accelerator::free_memory() {
    for (nn::Module* model : models_) model->set_gate(nullptr);
    for (optim::Optimizer* optimizer : optimizers_) optimizer->set_gate(nullptr);
    for (optim::Scheduler* scheduler : schedulers_) scheduler->set_gate(nullptr);
    for (data::DataLoader* loader : loaders_) loader->set_gate(nullptr);
    models_.clear();
    optimizers_.clear();
    schedulers_.clear();
    loaders_.clear();
    state_->active.clear();
    state_->step = 0;
    state_->sync_gradients = true;
    host_memory::empty_cache();
    if (device_.is_cuda()) cuda::empty_cache(device_.index);
}

// --- the loop

void StepRecord::optimizer_steps(const optim::Optimizer& optimizer) {
    std::erase_if(schedulers, [&](optim::Scheduler* scheduler) {
        if (&scheduler->optimizer() != &optimizer) return false;
        early_schedulers.push_back(scheduler);
        return true;
    });
}

void Accelerator::advance_accumulation() {
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

// --- compiled steps

std::int64_t Accelerator::micro_batches() const { return state_->opened; }

std::string Accelerator::step_kind(bool of_several) const {
    const bool last = state_->sync_with_dataloader && state_->end_of_dataloader();
    const bool completes = last || (state_->step + 1) % state_->num_steps == 0;
    std::string kind = str(state_->num_steps, completes, state_->sync_gradients);
    if (of_several) kind += str(" at ", last ? -1 : state_->step % state_->num_steps);
    for (const nn::Module* model : models_) kind += model->is_training() ? " train" : " eval";
    return kind;
}

std::vector<Tensor> Accelerator::step_parameters() const {
    std::vector<Tensor> all;
    for (const nn::Module* model : models_)
        for (const Tensor& parameter : model->parameters()) all.push_back(parameter);
    std::unordered_set<const Impl*> found;
    for (const Tensor& parameter : all) found.insert(parameter.impl().get());
    for (optim::Optimizer* optimizer : optimizers_)
        for (const Tensor& parameter : optimizer->parameters())
            if (found.insert(parameter.impl().get()).second) all.push_back(parameter);
    return all;
}

template <class F>
void Accelerator::for_each_rate(F&& f) const {
    for (optim::Optimizer* optimizer : optimizers_)
        for (optim::GroupRef group : optimizer->param_groups()) {
            f(group.lr);
            f(group.momentum);
        }
}

void Accelerator::record_step(StepRecord* record) { state_->record = record; }

Accelerator::BeforeStep Accelerator::before_step() const {
    BeforeStep before{state_->step, state_->sync_gradients, {}, {}};
    for (const optim::Scheduler* s : schedulers_) before.schedulers.push_back(s->state_dict());
    for_each_rate([&](double& rate) { before.rates.push_back(rate); });
    return before;
}

void Accelerator::rewind_step(const BeforeStep& before) {
    state_->step = before.step;
    state_->sync_gradients = before.sync_gradients;
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        schedulers_[i]->load_state_dict(before.schedulers[i]);
    std::size_t next = 0;
    for_each_rate([&](double& rate) { rate = before.rates[next++]; });
}

void Accelerator::hand_over_hyperparameters() {
    for (optim::Optimizer* optimizer : optimizers_) optimizer->push_options();
}

std::vector<std::shared_ptr<Storage>> Accelerator::step_memory(
    const std::vector<Tensor>& parameters) const {
    std::vector<std::shared_ptr<Storage>> all;
    const auto add = [&](const Tensor& t) {
        if (t.defined()) all.push_back(t.impl()->storage);
    };
    for (const Tensor& parameter : parameters) add(parameter);
    for (const nn::Module* model : models_)
        for (const auto& [name, buffer] : model->named_buffers()) add(buffer);
    for (const optim::Optimizer* optimizer : optimizers_)
        for (const Tensor& parameter : parameters)
            if (const optim::ParamState* state = optimizer->state(parameter)) {
                add(state->step);
                for (const Tensor& buffer : state->buffers) add(buffer);
            }
    return all;
}

void Accelerator::note_replay(const std::vector<Tensor>& parameters) {
    for (const Tensor& p : parameters) p.impl()->storage->bump_version();
    for (const nn::Module* model : models_)
        for (const auto& [name, buffer] : model->named_buffers())
            buffer.impl()->storage->bump_version();
}

bool Accelerator::sync_gradients() const { return state_->sync_gradients; }
int Accelerator::gradient_accumulation_steps() const { return state_->num_steps; }
void Accelerator::set_gradient_accumulation_steps(int steps) {
    state_->num_steps = positive_steps("Accelerator", steps);
}

void Accelerator::backward(const Tensor& loss) {
    if (state_->num_steps == 1) return loss.backward();
    (loss / static_cast<double>(state_->num_steps)).backward();
}

AutocastGuard Accelerator::autocast() const {
    return AutocastGuard(autocast_dtype() ? autocast_dtype() : axle::autocast_dtype());
}

Tensor Accelerator::clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                    double norm_type) {
    return optim::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
    optim::clip_grad_value_(parameters, clip_value);
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

void Accelerator::print_line(const std::string& line) { std::cout << line + '\n' << std::flush; }

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

namespace {

// The gradients that there are, by the name of their parameter.
nn::StateDict gradients_of(const nn::Module& model) {
    nn::StateDict gradients;
    for (const auto& [name, parameter] : model.named_parameters())
        if (const Tensor grad = parameter.grad(); grad.defined())
            gradients.emplace_back(name, grad);
    return gradients;
}

void set_gradients(const nn::Module& model, const std::map<std::string, Tensor>& gradients) {
    for (const auto& [name, parameter] : model.named_parameters()) {
        const auto found = gradients.find(name);
        if (found == gradients.end())
            parameter.zero_grad();
        else
            parameter.set_grad(found->second.to(parameter.device()));
    }
}

}  // namespace

void Accelerator::register_for_checkpointing(Checkpointable& object) { add_once(custom_, object); }

std::string Accelerator::save_state(const std::string& directory) {
    const profiler::Scope scope("save_state", profiler::Category::io);
    CheckpointWriter writer(directory);
    for (std::size_t i = 0; i < models_.size(); ++i)
        save_safetensors(writer.directory() + "/" + numbered("model", i) + ".safetensors",
                         models_[i]->saved_state(), {{"format", "pt"}});
    // Between two updates, what has been accumulated is state as well.
    for (std::size_t i = 0; i < models_.size() && !state_->sync_gradients; ++i)
        save_safetensors(writer.directory() + "/" + numbered("gradients", i) + ".safetensors",
                         gradients_of(*models_[i]));
    for (std::size_t i = 0; i < optimizers_.size(); ++i)
        writer.write(numbered("optimizer", i), optimizers_[i]->state_dict());
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        writer.write(numbered("scheduler", i), schedulers_[i]->state_dict());
    for (std::size_t i = 0; i < loaders_.size(); ++i)
        writer.write(numbered("dl_state_dict", i), loaders_[i]->state_dict());
    for (std::size_t i = 0; i < custom_.size(); ++i)
        writer.write(str("custom_checkpoint_", i), custom_[i]->state_dict());
    // As text: a seed has 64 bits, a JSON integer one less.
    const GeneratorState random = generator_state();
    writer.write("random_states_0", Tree{{"seed", std::to_string(random.seed)},
                                         {"offset", std::to_string(random.offset)},
                                         {"step", state_->step},
                                         {"sync_gradients", state_->sync_gradients}});
    writer.commit(state_->iteration);
    ++state_->iteration;
    return directory;
}

namespace {

std::uint64_t unsigned_from(const Tree& tree) {
    const std::string& text = tree.string();
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size())
        throw ValueError(str("not an unsigned integer: '", text, "'"));
    return value;
}

// Says which file an object refused.
template <class F>
void fitting(const CheckpointReader& reader, const std::string& file, F&& load) {
    try {
        load();
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        throw FileError(str(reader.path(), "/", file, ": ", error.what()));
    }
}

}  // namespace

void Accelerator::load_state(const std::string& directory) {
    if (!state_->active.empty())
        throw UsageError("load_state: not within the loop over a prepared loader; leave it first");
    const profiler::Scope scope("load_state", profiler::Category::io);
    const CheckpointReader reader(directory);
    // Everything is read before anything is changed.
    std::vector<nn::StateDict> models;
    std::vector<std::map<std::string, Tensor>> gradients(models_.size());
    std::vector<Tree> optimizers, schedulers, loaders, custom;
    for (std::size_t i = 0; i < models_.size(); ++i) {
        auto tensors = load_safetensors(reader.file(numbered("model", i) + ".safetensors")).tensors;
        models.emplace_back(tensors.begin(), tensors.end());
        const std::string file = numbered("gradients", i) + ".safetensors";
        if (reader.contains(file)) gradients[i] = load_safetensors(reader.file(file)).tensors;
    }
    for (std::size_t i = 0; i < optimizers_.size(); ++i)
        optimizers.push_back(reader.read(numbered("optimizer", i)));
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        schedulers.push_back(reader.read(numbered("scheduler", i)));
    for (std::size_t i = 0; i < loaders_.size(); ++i)
        loaders.push_back(reader.read(numbered("dl_state_dict", i)));
    for (std::size_t i = 0; i < custom_.size(); ++i)
        custom.push_back(reader.read(str("custom_checkpoint_", i)));
    const Tree random = reader.read("random_states_0");
    GeneratorState generator;
    std::int64_t step = 0;
    bool sync_gradients = true;
    fitting(reader, "random_states_0.json", [&] {
        generator = {unsigned_from(random["seed"]), unsigned_from(random["offset"])};
        step = random["step"].integer();
        sync_gradients = random["sync_gradients"].boolean();
    });

    for (std::size_t i = 0; i < models_.size(); ++i)
        fitting(reader, numbered("model", i) + ".safetensors",
                [&] { models_[i]->load_state_dict(models[i]); });
    for (std::size_t i = 0; i < models_.size(); ++i)
        fitting(reader, numbered("gradients", i) + ".safetensors",
                [&] { set_gradients(*models_[i], gradients[i]); });
    for (std::size_t i = 0; i < optimizers_.size(); ++i)
        fitting(reader, numbered("optimizer", i) + ".json",
                [&] { optimizers_[i]->load_state_dict(optimizers[i]); });
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        fitting(reader, numbered("scheduler", i) + ".json",
                [&] { schedulers_[i]->load_state_dict(schedulers[i]); });
    for (std::size_t i = 0; i < loaders_.size(); ++i)
        fitting(reader, numbered("dl_state_dict", i) + ".json",
                [&] { loaders_[i]->load_state_dict(loaders[i]); });
    for (std::size_t i = 0; i < custom_.size(); ++i)
        fitting(reader, str("custom_checkpoint_", i, ".json"),
                [&] { custom_[i]->load_state_dict(custom[i]); });
    set_generator_state(generator);
    state_->step = step;
    state_->sync_gradients = sync_gradients;
    state_->iteration = reader.iteration() + 1;
}

}  // namespace axle::inline v0::accel
