#include "accel/loop/gradient_division.h"

#include <algorithm>
#include <utility>

#include "core/autograd/local_part.h"
#include "core/cuda/graph.h"
#include "core/ops.h"
#include "optim/clip.h"

namespace axle::accel {
namespace {

template <class T>
std::int64_t index_in(const std::vector<T*>& list, const T* object) {
    const auto found = std::find(list.begin(), list.end(), object);
    return found == list.end() ? -1 : found - list.begin();
}

// Returns the object with a saved index, or nullptr if the index is negative. Throws ValueError if
// the index is too large.
template <class T>
T* object_at(const std::vector<T*>& list, std::int64_t index) {
    if (index < 0) return nullptr;
    if (index >= std::ssize(list))
        throw ValueError(str(
            "load_state: the state contains loss weights for an object that is not "
            "prepared: index ",
            index, ", ", list.size(), list.size() == 1 ? " prepared object" : " prepared objects"));
    return list[static_cast<std::size_t>(index)];
}

Tensor number(double value, Device device = Device::cpu()) {
    return full({}, value, {.dtype = f64, .device = device});
}

}  // namespace

GradientDivision::GradientDivision() : hook_state_(std::make_shared<HookState>()) {
    hook_state_->division = this;
    hook_ = autograd::on_backward_begin([state = hook_state_](const std::vector<Tensor>& leaves) {
        if (state->running_thread == std::this_thread::get_id()) state->division->on_begin(leaves);
    });
}

GradientDivision::Part& GradientDivision::part_of(const nn::Module* model,
                                                  const optim::Optimizer* optimizer) {
    for (const auto& part : parts_)
        if (part->model == model && part->optimizer == optimizer) return *part;
    parts_.push_back(std::make_unique<Part>(Part{.model = model, .optimizer = optimizer}));
    return *parts_.back();
}

void GradientDivision::set_objects(
    const std::vector<nn::Module*>& models,
    const std::vector<std::shared_ptr<dist::DistributedModel>>& replicas,
    const std::vector<optim::Optimizer*>& optimizers) {
    std::vector<const void*> objects(models.begin(), models.end());
    for (optim::Optimizer* optimizer : optimizers) {
        objects.push_back(optimizer);
        for (std::size_t g = 0; g < optimizer->group_count(); ++g)
            for (const Tensor& p : optimizer->group(g).params) objects.push_back(p.impl().get());
    }
    if (objects == objects_) return;
    objects_ = std::move(objects);
    for (const auto& part : parts_) part->parameters.clear();
    index_.clear();
    std::unordered_map<const Impl*, const nn::Module*> model_of;
    for (const nn::Module* model : models)
        for (const Tensor& p : model->parameters()) model_of.emplace(p.impl().get(), model);
    const auto add = [&](const Tensor& p, const optim::Optimizer* optimizer) {
        if (index_.contains(p.impl().get())) return;
        const auto model = model_of.find(p.impl().get());
        Part& part = part_of(model == model_of.end() ? nullptr : model->second, optimizer);
        part.parameters.push_back(p);
        index_.emplace(p.impl().get(), &part);
    };
    for (optim::Optimizer* optimizer : optimizers)
        for (const Tensor& p : optimizer->parameters()) add(p, optimizer);
    for (const nn::Module* model : models)
        for (const Tensor& p : model->parameters()) add(p, nullptr);
    for (const auto& part : parts_)
        if (const auto i = index_in(models, const_cast<nn::Module*>(part->model)); i >= 0)
            part->replicas = replicas[static_cast<std::size_t>(i)].get();
}

template <class F>
void GradientDivision::remove_if(F&& f) {
    std::erase_if(index_, [&](const auto& entry) { return f(*entry.second); });
    std::erase_if(parts_, [&](const auto& part) { return f(*part); });
    objects_.clear();  // set_objects() distributes the remaining parameters again
}
void GradientDivision::remove(const nn::Module& model) {
    remove_if([&](const Part& part) { return part.model == &model; });
}
void GradientDivision::replace(const nn::Module& from, const nn::Module& to) {
    for (const auto& part : parts_)
        if (part->model == &from) part->model = &to;
}
void GradientDivision::remove(const optim::Optimizer& optimizer) {
    remove_if([&](const Part& part) { return part.optimizer == &optimizer; });
}

bool GradientDivision::has_gradients(const Part& part) {
    return std::ranges::any_of(part.parameters, autograd::has_gradient);
}

bool GradientDivision::holds_sum(const Part& part) const {
    return std::ranges::any_of(parts_, [&](const auto& other) {
        const bool is_of_model = part.model != nullptr && other->model == part.model;
        return (other.get() == &part || is_of_model) && has_gradients(*other);
    });
}

// --- a backward pass

void GradientDivision::note(const char* op, Kind kind) {
    if (kind_ != Kind::none && kind_ != kind)
        throw UsageError(str(op,
                             ": the update has losses with and without a weight; pass a weight for "
                             "all of them or for none"));
    kind_ = kind;
}

void GradientDivision::run(const Tensor& loss, bool retain_graph) {
    for (const auto& part : parts_) part->is_reached = false;
    struct Running {
        explicit Running(HookState& state_) : state(state_) {
            state.running_thread = std::this_thread::get_id();
        }
        ~Running() { state.running_thread = std::thread::id(); }
        HookState& state;
    } const running(*hook_state_);
    loss.backward({}, retain_graph);
}

void GradientDivision::on_begin(const std::vector<Tensor>& leaves) {
    const NoGrad no_grad;
    for (const Tensor& leaf : leaves) {
        const auto found = index_.find(leaf.impl().get());
        if (found == index_.end() || found->second->is_reached) continue;
        // If a backward pass reaches one part of a model, it counts for all parts of the model,
        // because every process must count the same passes.
        for (const auto& part : parts_)
            if (part.get() == found->second ||
                (part->model != nullptr && part->model == found->second->model))
                open(*part);
    }
}

void GradientDivision::open(Part& part) const {
    if (std::exchange(part.is_reached, true)) return;
    const bool adds = kind_ == Kind::sums || part.window == window_;
    const bool is_fresh = !holds_sum(part);
    if (is_fresh || kind_ == Kind::means) part.weight = {};
    if (!is_fresh && part.divisor.defined() && adds)
        optim::scale_grads_(part.parameters, part.divisor);
    part.divisor = {};
    part.window = window_;
    part.is_open = true;
}

void GradientDivision::backward_sum(const Tensor& loss, const Tensor& weight, int processes,
                                    bool completes) {
    note("backward", Kind::sums);
    run(loss);
    const NoGrad no_grad;
    bool reaches_any = false;
    for (const auto& part : parts_) {
        if (!part->is_reached) continue;
        reaches_any = true;
        part->weight = part->weight.defined() ? add(part->weight, weight) : clone(weight);
    }
    if (!reaches_any)
        throw UsageError(
            "backward: a loss with a weight depends on no parameter of a prepared model or "
            "optimizer; prepare the model first");
    for (const auto& part : parts_) {
        if (!completes || !part->is_reached) continue;
        if (part->replicas != nullptr && part->replicas->reduces())
            close(*part, part->replicas->sum(part->weight) / static_cast<double>(processes));
        else if (part->replicas == nullptr || part->replicas->syncs())
            close_here(*part);  // divides by the weights of this process only
    }
}

void GradientDivision::backward_mean(const Tensor& loss, bool completes, bool retain_graph) {
    note("backward", Kind::means);
    run(loss, retain_graph);
    const NoGrad no_grad;
    for (const auto& part : parts_)
        if (completes && part->is_reached) close_here(*part);
}

void GradientDivision::close(Part& part, const Tensor& divisor) const {
    part.is_open = false;
    // If the divisor is not positive, for example because all weights are 0, the gradients are set
    // to 0.
    const Tensor none = zeros({}, {.dtype = f64, .device = divisor.device()});
    optim::scale_grads_(part.parameters,
                        where(le(divisor, 0.0), none, full_like(divisor, 1.0) / divisor));
    part.divisor = divisor;
    if (part.weight.defined()) part.weight = divisor;
}

void GradientDivision::close_here(Part& part) {
    if (!part.is_open || part.window != window_ || !has_gradients(part)) return;
    if (part.weight.defined()) return close(part, part.weight);
    part.is_open = false;
    if (share_ != 1) close(part, number(share_, part.parameters.front().device()));
}

// --- reading and clearing gradients

void GradientDivision::divide(const optim::Optimizer& optimizer) {
    const NoGrad no_grad;
    for (const auto& part : parts_)
        if (part->is_open && part->optimizer == &optimizer) close_here(*part);
}

void GradientDivision::divide(const std::vector<Tensor>& parameters) {
    const NoGrad no_grad;
    if (std::ranges::none_of(parts_, [](const auto& part) { return part->is_open; })) return;
    for (const Tensor& p : parameters)
        if (const auto found = index_.find(p.impl().get()); found != index_.end())
            close_here(*found->second);
}

void GradientDivision::divide_all() {
    const NoGrad no_grad;
    for (const auto& part : parts_) close_here(*part);
}

void GradientDivision::before_step(const optim::Optimizer& optimizer) {
    divide(optimizer);
    kind_ = Kind::none;
}

void GradientDivision::before_zero_grad(const optim::Optimizer& optimizer) {
    kind_ = Kind::none;
    for (const auto& part : parts_)
        if (part->optimizer == &optimizer)
            part->weight = {}, part->divisor = {}, part->is_open = false;
}

void GradientDivision::discard() {
    for (const auto& part : parts_) {
        for (const Tensor& p : part->parameters) p.zero_grad();
        part->weight = {}, part->divisor = {}, part->is_open = false;
    }
}

// --- checkpoints

Tree GradientDivision::state(const std::vector<nn::Module*>& models,
                             const std::vector<optim::Optimizer*>& optimizers) const {
    Tree list = Tree::list();
    if (kind_ != Kind::sums) return list;
    for (const auto& part : parts_)
        if (part->weight.defined() && holds_sum(*part))
            list.push_back({{"model", index_in(models, const_cast<nn::Module*>(part->model))},
                            {"optimizer",
                             index_in(optimizers, const_cast<optim::Optimizer*>(part->optimizer))},
                            {"weight", part->weight.item()},
                            {"divisor", part->divisor.defined() ? part->divisor.item() : 1.0}});
    return list;
}

void GradientDivision::load_state(const std::vector<Tree>& states, int process, int processes,
                                  const std::vector<nn::Module*>& models,
                                  const std::vector<optim::Optimizer*>& optimizers) {
    for (const auto& part : parts_) {
        part->weight = {}, part->divisor = {};
        part->is_open = has_gradients(*part);
        part->window = window_;
    }
    const auto saved = static_cast<double>(states.size());
    const bool as_many = states.size() == static_cast<std::size_t>(processes);
    kind_ = Kind::none;
    for (std::size_t s = 0; s < states.size(); ++s) {
        if (as_many && s != static_cast<std::size_t>(process)) continue;
        for (const Tree& of : states[s].elements()) {
            Part& part = part_of(object_at(models, of["model"].integer()),
                                 object_at(optimizers, of["optimizer"].integer()));
            if (part.parameters.empty()) continue;
            const Device device = part.parameters.front().device();
            const double share = as_many ? 1 : 1.0 / processes;
            const Tensor weight = number(of["weight"].number() * share, device);
            part.weight = part.weight.defined() ? add(part.weight, weight) : weight;
            // If the number of processes has changed, each process has loaded the mean of the
            // gradients of the `saved` processes. The sum over processes has thus changed by the
            // factor processes / saved, so the divisor is multiplied by the inverse.
            part.divisor =
                number(of["divisor"].number() * (as_many ? 1 : saved / processes), device);
            kind_ = Kind::sums;
        }
    }
}

}  // namespace axle::accel
