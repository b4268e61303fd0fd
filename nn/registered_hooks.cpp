#include "nn/registered_hooks.h"

#include <utility>

#include "core/autograd/autograd.h"

namespace axle::nn {
namespace {

// Adds a hook to one of the maps, and returns the handle that removes it.
template <class Hook>
autograd::HookHandle add_hook(const std::shared_ptr<RegisteredHooks>& hooks,
                              std::map<std::int64_t, Hook> RegisteredHooks::*map, Hook hook) {
    const std::int64_t key = hooks->next++;
    (hooks.get()->*map)[key] = std::move(hook);
    return autograd::HookHandle([weak = std::weak_ptr(hooks), map, key] {
        if (const auto shared = weak.lock()) (shared.get()->*map).erase(key);
    });
}

void check_count(const char* op, std::size_t before, std::size_t now) {
    if (before != now)
        throw UsageError(str(op,
                             ": the hook must not change the number of tensors: the number was ",
                             before, " and is ", now));
}

std::vector<Tensor*> pointers_to(std::vector<Tensor>& tensors) {
    std::vector<Tensor*> pointers;
    pointers.reserve(tensors.size());
    for (Tensor& tensor : tensors) pointers.push_back(&tensor);
    return pointers;
}

// Replaces the tensors that require a gradient by views with one common node. The rule of the node
// is called with the gradients of all elements of `tensors`. Returns false, and adds no node, if no
// tensor requires a gradient or gradients are not recorded.
template <class Rule>
bool add_node(const char* op, const std::vector<Tensor*>& tensors, Rule rule) {
    std::vector<Tensor> inputs, views;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i]->defined() || !tensors[i]->requires_grad()) continue;
        inputs.push_back(*tensors[i]);
        views.push_back(tensors[i]->detach());
        places.push_back(i);
    }
    if (!grad_enabled() || inputs.empty()) return false;
    const std::vector<Tensor*> outputs = pointers_to(views);
    autograd::attach(op, outputs, std::vector<autograd::Input>(inputs.begin(), inputs.end()),
                     [places, count = tensors.size(), rule](const Grads& dy, Needs) -> Grads {
                         Grads all(count), own;
                         for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = dy[i];
                         rule(all);
                         for (const std::size_t place : places) own.push_back(all[place]);
                         return own;
                     });
    for (std::size_t i = 0; i < places.size(); ++i) *tensors[places[i]] = views[i];
    return true;
}

}  // namespace

// The backward hooks of one call.
struct BackwardCall {
    // Runs the hooks. Does nothing if the module was destroyed.
    void run(Grads& input_gradients) const {
        if (hooks->module == nullptr) return;
        const std::size_t count = input_gradients.size();
        for (const auto& [key, hook] : std::map(hooks->backward)) {
            hook(*hooks->module, input_gradients, output_gradients);
            check_count("register_full_backward_hook", count, input_gradients.size());
        }
    }

    std::shared_ptr<RegisteredHooks> hooks;
    Grads output_gradients;
    std::size_t inputs = 0;
    bool inputs_have_node = false;
};

autograd::HookHandle Module::register_forward_pre_hook(ForwardPreHook hook) {
    registered_hooks();
    return add_hook(registered_hooks_, &RegisteredHooks::before, std::move(hook));
}
autograd::HookHandle Module::register_forward_hook(ForwardHook hook) {
    registered_hooks();
    return add_hook(registered_hooks_, &RegisteredHooks::after, std::move(hook));
}
autograd::HookHandle Module::register_full_backward_hook(FullBackwardHook hook) {
    registered_hooks();
    return add_hook(registered_hooks_, &RegisteredHooks::backward, std::move(hook));
}

bool Module::has_registered_hooks() const {
    return registered_hooks_ &&
           !(registered_hooks_->before.empty() && registered_hooks_->after.empty() &&
             registered_hooks_->backward.empty());
}

RegisteredHooks& Module::registered_hooks() {
    if (!registered_hooks_) {
        registered_hooks_ = std::make_shared<RegisteredHooks>();
        registered_hooks_->module = this;
    }
    return *registered_hooks_;
}

Module::HookedCall::HookedCall(Module& module, const std::vector<Tensor*>& inputs)
    : module_(module), hooks_(module.registered_hooks_) {
    for (const Tensor* input : inputs) inputs_.push_back(*input);
    for (const auto& [key, hook] : std::map(hooks_->before)) {
        hook(module, inputs_);
        check_count("register_forward_pre_hook", inputs.size(), inputs_.size());
    }
    if (!hooks_->backward.empty()) {
        backward_ = std::make_shared<BackwardCall>();
        backward_->hooks = hooks_;
        backward_->inputs = inputs.size();
        const std::vector<Tensor*> own = pointers_to(inputs_);
        backward_->inputs_have_node = add_node(
            "module_inputs", own, [call = backward_](Grads& gradients) { call->run(gradients); });
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) *inputs[i] = inputs_[i];
}

void Module::HookedCall::finish(std::vector<Tensor>& outputs) {
    const std::size_t count = outputs.size();
    for (const auto& [key, hook] : std::map(hooks_->after)) {
        hook(module_, inputs_, outputs);
        check_count("register_forward_hook", count, outputs.size());
    }
    if (backward_ == nullptr) return;
    const std::vector<Tensor*> own = pointers_to(outputs);
    add_node("module_outputs", own, [call = backward_](Grads& gradients) {
        call->output_gradients = gradients;
        Grads none(call->inputs);
        if (!call->inputs_have_node) call->run(none);
    });
}

}  // namespace axle::nn
