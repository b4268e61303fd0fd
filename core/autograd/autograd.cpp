// The recording of ops: grad mode, saved tensors, nodes and a tensor's autograd data.
// core/autograd/backward.cpp runs the nodes.
#include "core/autograd/autograd.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "core/autograd/autograd_meta.h"
#include "core/autograd/leaf_registry.h"
#include "core/autograd/local_part.h"
#include "core/check.h"
#include "core/ops.h"

namespace axle {
namespace {

thread_local bool recording = true;
thread_local std::vector<SavedTensorHooks> hook_stack;

}  // namespace

bool grad_enabled() { return recording; }
GradMode::GradMode(bool enabled) : before_(std::exchange(recording, enabled)) {}
GradMode::~GradMode() { recording = before_; }

// --- saved tensors

struct PackedTensor {
    std::shared_ptr<void> value;
    std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};

namespace autograd {
// The node whose rule is running on this thread.
thread_local std::shared_ptr<Node> running;
}  // namespace autograd

SavedTensor::SavedTensor(const Tensor& tensor) {
    if (!grad_enabled() || !tensor.defined()) return;
    original_ = tensor.impl();
    if (!hook_stack.empty()) {
        const SavedTensorHooks hooks = hook_stack.back();
        packed_ =
            std::make_shared<PackedTensor>(PackedTensor{hooks.pack(tensor.detach()), hooks.unpack});
        return;
    }
    // If the tensor has no history, it can be the op's own output. An alias is saved to avoid a
    // reference cycle.
    tensor_ = tensor.impl()->autograd == nullptr ? tensor.detach() : tensor;
    storage_ = tensor.impl()->storage;
    version_ = storage_->version();
}

Tensor SavedTensor::get() const {
    const std::shared_ptr<autograd::Node>& node = autograd::running;
    const char* op = node != nullptr ? node->op : "backward";
    if (packed_ != nullptr) {
        if (grad_enabled())
            throw UsageError(str(op,
                                 ": can't be differentiated twice through checkpoint or other "
                                 "saved-tensor hooks; compute it without them"));
        return packed_->unpack(packed_->value);
    }
    if (!tensor_.defined()) return {};
    if (tensor_.impl()->storage != storage_)
        throw UsageError(
            str(op, ": the storage of a tensor saved for the backward pass was replaced: shape ",
                tensor_.shape(), "; move or convert a module only after its backward pass"));
    if (storage_->version() != version_)
        throw UsageError(str(op, ": a tensor saved for the backward pass was changed in place: ",
                             "shape ", tensor_.shape(), ", saved at version ", version_,
                             ", now at version ", tensor_.version(), "; change a clone() instead"));
    if (!grad_enabled() || node == nullptr) return tensor_;
    for (std::size_t i = 0; i < node->outputs.size(); ++i) {
        const std::weak_ptr<Impl>& output = node->outputs[i];
        if (output.owner_before(original_) || original_.owner_before(output)) continue;
        const Tensor y = tensor_.detach();
        autograd::Meta& meta = autograd::meta_of(y);
        meta.requires_grad = true;
        meta.node = node;
        meta.output = static_cast<int>(i);
        return y;
    }
    return tensor_;
}

SavedTensorHooksGuard::SavedTensorHooksGuard(SavedTensorHooks hooks) {
    hook_stack.push_back(std::move(hooks));
}
SavedTensorHooksGuard::~SavedTensorHooksGuard() { hook_stack.pop_back(); }

void refuse_double_backward(const char* op) {
    throw UsageError(str(op,
                         ": can't be differentiated twice: its backward pass is a fused "
                         "kernel whose gradient is not implemented"));
}

void refuse_third_derivative(const char* op) {
    throw UsageError(str(op,
                         ": can't be differentiated three times: its third derivative is not "
                         "implemented; leave create_graph out of the second pass"));
}

// --- graph

namespace autograd {
namespace {

std::atomic<std::int64_t> alive = 0;
std::atomic<std::uint64_t> created = 0;

// The members of a destroyed node. The outermost ~Node on this thread frees them.
struct FreedNode {
    std::vector<Edge> inputs;
    Rule rule;
};
thread_local std::vector<FreedNode>* free_queue = nullptr;

}  // namespace

Node::Node(const char* op_, Rule rule_) : op(op_), sequence(++created), rule(std::move(rule_)) {
    alive.fetch_add(1, std::memory_order_relaxed);
}

Node::~Node() {
    alive.fetch_sub(1, std::memory_order_relaxed);
    FreedNode freed{std::move(inputs), std::move(rule)};
    if (free_queue != nullptr) {
        try {
            free_queue->push_back(std::move(freed));
        } catch (const std::bad_alloc&) {
            // There is no memory to extend the queue, so `freed` is destroyed at the end of this
            // function. This can call ~Node recursively, but not deeply, because each freed node
            // provides memory for the queue.
        }
        return;
    }
    std::vector<FreedNode> queue;
    free_queue = &queue;
    { const FreedNode first = std::move(freed); }
    while (!queue.empty()) {
        const FreedNode next = std::move(queue.back());
        queue.pop_back();
    }
    free_queue = nullptr;
}

std::int64_t live_nodes() { return alive.load(std::memory_order_relaxed); }

Meta& meta_of(const Tensor& t) {
    OwningPtr<Meta>& meta = t.impl()->autograd;
    if (meta == nullptr) meta = make_owning<Meta>();
    return *meta;
}

Edge edge_to(const Tensor& t) {
    Edge edge;
    if (!t.defined() || !t.requires_grad()) return edge;
    const Meta& meta = *t.impl()->autograd;
    edge.node = meta.node;
    edge.output = meta.output;
    if (edge.node == nullptr) edge.leaf = t.impl();
    edge.shape = t.shape();
    edge.dtype = t.dtype();
    return edge;
}

// --- anomaly detection

namespace {
std::atomic<bool> detect_anomaly = false;
}  // namespace

void set_detect_anomaly(bool on) { detect_anomaly.store(on, std::memory_order_relaxed); }
bool is_anomaly_detection_enabled() { return detect_anomaly.load(std::memory_order_relaxed); }

bool has_nan(const Tensor& x) {
    if (!x.defined() || !is_floating(x.dtype()) || x.device().is_meta()) return false;
    const NoGrad no_grad;
    const Tensor values = x.detach();
    return sum(ne(values, values)).item() > 0;
}

// --- recording of ops, and hooks of leaves

bool is_recorded(std::span<const Input> inputs) {
    if (!grad_enabled()) return false;
    for (const Input& t : inputs)
        if (t->defined() && t->requires_grad()) return true;
    return false;
}

void attach(const char* op, std::span<Tensor* const> outputs, std::span<const Input> inputs,
            Rule rule) {
    const auto node = std::make_shared<Node>(op, std::move(rule));
    node->inputs.reserve(inputs.size());
    for (const Input& input : inputs) node->inputs.push_back(edge_to(*input));
    if (is_anomaly_detection_enabled())
        node->made_nan =
            std::any_of(outputs.begin(), outputs.end(),
                        [](const Tensor* y) { return has_nan(*y); }) &&
            std::none_of(inputs.begin(), inputs.end(), [](const Input& x) { return has_nan(*x); });
    node->outputs.reserve(outputs.size());
    for (Tensor* y : outputs) {
        // If an op returns one of its inputs, the output must be a new tensor, because its history
        // differs from the history of the input.
        if (y->impl()->autograd != nullptr) *y = y->detach();
        Meta& meta = meta_of(*y);
        meta.requires_grad = is_floating(y->dtype());
        meta.node = node;
        meta.output = static_cast<int>(node->outputs.size());
        node->outputs.push_back(y->impl());
    }
}

HookHandle on_leaf_final(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
    static std::atomic<std::uint64_t> ids = 0;
    const std::uint64_t id = ++ids;
    if (!leaf.is_leaf())
        throw UsageError(str("on_leaf_final: the tensor must be a leaf: the tensor of shape ",
                             leaf.shape(), " is the result of an operation; use detach() on it"));
    meta_of(leaf).hooks.emplace_back(id, std::move(hook));
    return HookHandle([id, weak = std::weak_ptr<Impl>(leaf.impl())] {
        const std::shared_ptr<Impl> impl = weak.lock();
        if (impl != nullptr && impl->autograd != nullptr)
            std::erase_if(impl->autograd->hooks, [id](const auto& h) { return h.first == id; });
    });
}

// --- sharded leaves

bool is_sharded(const Tensor& leaf) {
    const OwningPtr<Meta>& meta = leaf.impl()->autograd;
    return meta != nullptr && meta->local_part.defined();
}

Tensor local_part(const Tensor& leaf) {
    return is_sharded(leaf) ? leaf.impl()->autograd->local_part : leaf;
}

bool has_gradient(const Tensor& leaf) {
    return pending_gradient(leaf).defined() ||
           (is_sharded(leaf) && local_part(leaf).grad().defined());
}

void set_local_part(const Tensor& leaf, const Tensor& part, std::int64_t begin) {
    if (!leaf.is_leaf())
        throw UsageError(str("set_local_part: the tensor must be a leaf: the tensor of shape ",
                             leaf.shape(), " is the result of an operation"));
    Meta& meta = meta_of(leaf);
    if (meta.grad.defined())
        throw UsageError(str("set_local_part: the leaf of shape ", leaf.shape(),
                             " has a gradient; call zero_grad() first"));
    meta.local_part = part;
    meta.local_begin = begin;
}

std::int64_t local_begin(const Tensor& leaf) {
    return is_sharded(leaf) ? leaf.impl()->autograd->local_begin : 0;
}

Tensor local_part_of(const Tensor& leaf, const Tensor& whole) {
    const Tensor own = slice_for(leaf, whole);
    if (!is_sharded(leaf)) return own;
    return own.reshape({-1}).narrow(0, local_begin(leaf), local_part(leaf).numel());
}

void copy_to_leaf(const Tensor& leaf, const Tensor& whole) {
    const NoGrad no_grad;
    local_part(leaf).copy_(local_part_of(leaf, whole.detach()));
    if (is_sharded(leaf)) leaf.impl()->storage->bump_version();
}

Tensor take_pending_gradient(const Tensor& leaf) {
    const OwningPtr<Meta>& meta = leaf.impl()->autograd;
    return meta == nullptr ? Tensor() : std::exchange(meta->grad, {});
}

Tensor pending_gradient(const Tensor& leaf) {
    const OwningPtr<Meta>& meta = leaf.impl()->autograd;
    return meta == nullptr ? Tensor() : meta->grad;
}

void set_pending_gradient(const Tensor& leaf, const Tensor& gradient) {
    if (gradient.defined() && gradient.shape() != leaf.shape())
        throw ShapeError(str("set_pending_gradient: shapes differ: gradient ", gradient.shape(),
                             ", tensor ", leaf.shape()));
    meta_of(leaf).grad = gradient;
}

namespace {
thread_local std::vector<std::function<void()>> after_rule;
}  // namespace

void run_after_rule(std::function<void()> f) {
    if (running == nullptr)
        f();
    else
        after_rule.push_back(std::move(f));
}

void rule_has_returned() {
    while (!after_rule.empty()) {
        const std::function<void()> f = std::move(after_rule.back());
        after_rule.pop_back();
        f();
    }
}

}  // namespace autograd

// --- Tensor: gradients

bool Tensor::requires_grad() const {
    const Impl& impl = of("requires_grad");
    return impl.autograd != nullptr && impl.autograd->requires_grad;
}

Tensor& Tensor::set_requires_grad(bool value) {
    if (!is_leaf())
        throw UsageError(str("set_requires_grad: only leaves can be changed: the tensor of shape ",
                             shape(), " is the result of an operation; use detach() on it"));
    if (value && !is_floating(dtype()))
        throw UsageError(str("set_requires_grad: needs a floating dtype: the tensor is ", dtype()));
    if (value && !requires_grad() && autograd::is_sharded(*this))
        throw UsageError(
            str("set_requires_grad: a frozen parameter can't be trained after its model "
                "was sharded over processes: shape ",
                shape(), "; call set_requires_grad before the model is sharded"));
    autograd::Meta& meta = autograd::meta_of(*this);
    if (value && !meta.is_registered) autograd::add_leaf(impl_);
    if (!value && meta.is_registered) autograd::remove_leaf(*impl_);
    meta.requires_grad = meta.is_registered = value;
    return *this;
}

bool Tensor::is_leaf() const {
    const Impl& impl = of("is_leaf");
    return impl.autograd == nullptr || impl.autograd->node == nullptr;
}

namespace {

[[noreturn]] void refuse_whole_gradient(const char* op, const Tensor& leaf) {
    throw UsageError(str(op, ": the gradient of the parameter of shape ", leaf.shape(),
                         " is sharded over processes; use autograd::local_part(parameter).grad() "
                         "for the part of this process"));
}

}  // namespace

Tensor Tensor::grad() const {
    if (of("grad").autograd == nullptr) return {};
    if (autograd::is_sharded(*this)) refuse_whole_gradient("grad", *this);
    return impl_->autograd->grad;
}

void Tensor::set_grad(const Tensor& grad) const {
    if (of("set_grad").autograd != nullptr && autograd::is_sharded(*this))
        refuse_whole_gradient("set_grad", *this);
    if (grad.defined() && grad.shape() != shape())
        throw ShapeError(
            str("set_grad: shapes differ: gradient ", grad.shape(), ", tensor ", shape()));
    autograd::meta_of(*this).grad = grad;
}

void Tensor::zero_grad() const {
    if (of("zero_grad").autograd == nullptr) return;
    impl_->autograd->grad = {};
    if (autograd::is_sharded(*this)) impl_->autograd->local_part.zero_grad();
}

void Tensor::backward() const { autograd::backward({*this}); }

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
    autograd::backward({*this}, {gradient}, {.retain_graph = retain_graph});
}

}  // namespace axle
