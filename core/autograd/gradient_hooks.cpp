#include "core/autograd/gradient_hooks.h"

#include <atomic>
#include <utility>

#include "core/autograd/accumulation.h"
#include "core/autograd/autograd.h"

namespace axle::autograd {
namespace {

std::atomic<std::uint64_t> last_id = 0;

// Returns the gradient as the hooks of the output return it. Calls copies of the hooks, because a
// hook can remove itself.
Tensor call(const TensorHooks& hooks, int output, Tensor gradient) {
    for (const TensorHook& hook : TensorHooks(hooks)) {
        if (hook.output != output) continue;
        Tensor changed = hook.call(gradient);
        if (!changed.defined()) continue;
        if (changed.shape() != gradient.shape())
            throw ShapeError(str("register_hook: the hook must return a gradient of shape ",
                                 gradient.shape(), ": got ", changed.shape()));
        if (changed.dtype() != gradient.dtype())
            throw DTypeError(str("register_hook: the hook must return a gradient of dtype ",
                                 gradient.dtype(), ": got ", changed.dtype()));
        if (changed.device() != gradient.device())
            throw DeviceError(str("register_hook: the hook must return a gradient on ",
                                  gradient.device(), ": got one on ", changed.device()));
        gradient = std::move(changed);
    }
    return gradient;
}

// Throws UsageError unless the tensor requires a gradient.
void check_differentiable(const char* function, const Tensor& tensor) {
    if (!tensor.defined()) throw UsageError(str(function, ": the tensor is undefined"));
    if (!tensor.requires_grad())
        throw UsageError(str(function, ": the tensor must require a gradient: shape ",
                             tensor.shape(), "; call set_requires_grad() before it is used"));
}

// Returns a handle that removes the hook from the list in `owner`.
template <class Owner>
HookHandle handle_of(const std::shared_ptr<Owner>& owner, TensorHooks& (*list)(Owner&),
                     std::uint64_t id) {
    return HookHandle([id, list, weak = std::weak_ptr(owner)] {
        if (const std::shared_ptr<Owner> existing = weak.lock())
            std::erase_if(list(*existing), [id](const TensorHook& hook) { return hook.id == id; });
    });
}

}  // namespace

void call_hooks(const Node& node, Grads& dy) {
    if (node.hooks.empty()) return;
    for (std::size_t i = 0; i < dy.size(); ++i)
        if (dy[i].defined()) dy[i] = call(node.hooks, static_cast<int>(i), std::move(dy[i]));
}

Tensor call_hooks(const Meta& leaf, Tensor gradient) {
    return call(leaf.gradient_hooks, 0, std::move(gradient));
}

void retain_gradients(const Node& node, const Grads& dy, bool create_graph) {
    for (const auto& [output, tensor] : node.retained) {
        const Tensor& gradient = dy[static_cast<std::size_t>(output)];
        const std::shared_ptr<Impl> impl = tensor.lock();
        if (impl == nullptr || !gradient.defined()) continue;
        // A change in place gives the tensor another node.
        Meta* const meta = impl->autograd.get();
        if (meta != nullptr && meta->node.get() == &node)
            accumulate_grad(meta->grad, gradient, create_graph);
    }
}

HookHandle register_hook(const Tensor& tensor, GradientHook hook) {
    check_differentiable("register_hook", tensor);
    if (!hook)
        throw UsageError("register_hook: the hook must be callable: it is an empty function");
    const std::uint64_t id = ++last_id;
    Meta& meta = meta_of(tensor);
    if (meta.node != nullptr) {
        meta.node->hooks.push_back({id, meta.output, std::move(hook)});
        return handle_of<Node>(
            meta.node, [](Node& n) -> TensorHooks& { return n.hooks; }, id);
    }
    meta.gradient_hooks.push_back({id, 0, std::move(hook)});
    return handle_of<Impl>(
        tensor.impl(), [](Impl& i) -> TensorHooks& { return i.autograd->gradient_hooks; }, id);
}

void retain_grad(const Tensor& tensor) {
    check_differentiable("retain_grad", tensor);
    Meta& meta = meta_of(tensor);
    if (meta.node == nullptr || meta.retains_grad) return;
    meta.node->retained.emplace_back(meta.output, tensor.impl());
    meta.retains_grad = true;
}

}  // namespace axle::autograd

namespace axle {

void Tensor::retain_grad() const { autograd::retain_grad(*this); }

}  // namespace axle
