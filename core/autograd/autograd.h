// Reverse-mode differentiation over eager nodes.
//
// An op that records leaves a Node: edges to where its inputs came from, and a rule. backward()
// counts the in-edges of the part of the graph it can reach, without recursion; a node runs, and a
// leaf's gradient is final, when its count reaches zero.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace axle::inline v0 {

// Gradients of a node's outputs, or of its inputs: an undefined Tensor stands for zero.
using Grads = std::vector<Tensor>;

// Which inputs want a gradient; a rule may leave the others undefined and save the work.
struct Needs {
    std::uint64_t bits = 0;
    bool operator[](int input) const { return (bits >> input) & 1; }
};

// Thread-local switch: whether ops record.
bool grad_enabled();

// Sets it for a scope.
class GradMode {
  public:
    explicit GradMode(bool enabled);
    ~GradMode();
    GradMode(const GradMode&) = delete;
    GradMode& operator=(const GradMode&) = delete;

  private:
    bool before_;
};
struct NoGrad : GradMode {
    NoGrad() : GradMode(false) {}
};

// A tensor kept for the backward pass. Holds an input with its history and an output without it (so
// that no cycle arises); get() throws UsageError if the values were changed in place since.
class SavedTensor {
  public:
    SavedTensor() = default;
    explicit SavedTensor(const Tensor& tensor);
    // The tensor, unpacked by the hooks that packed it. Undefined stays undefined.
    Tensor get() const;
    operator Tensor() const { return get(); }  // NOLINT(google-explicit-constructor)

  private:
    Tensor tensor_;                     // unless packed
    std::weak_ptr<Impl> original_;      // recognises an output of the node that saved it
    std::shared_ptr<Storage> storage_;  // with version_: what the values were
    std::uint32_t version_ = 0;
    std::shared_ptr<struct PackedTensor> packed_;
};
inline SavedTensor saved(const Tensor& tensor) { return SavedTensor(tensor); }

// For a scope of this thread, pack sees every tensor that an op saves and returns what is kept
// instead; unpack turns it back when a rule asks. Checkpointing and offload are written with it.
struct SavedTensorHooks {
    std::function<std::shared_ptr<void>(const Tensor&)> pack;
    std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};
class SavedTensorHooksGuard {
  public:
    explicit SavedTensorHooksGuard(SavedTensorHooks hooks);
    ~SavedTensorHooksGuard();
    SavedTensorHooksGuard(const SavedTensorHooksGuard&) = delete;
    SavedTensorHooksGuard& operator=(const SavedTensorHooksGuard&) = delete;
};

namespace autograd {

// rule(dy, needs): gradients of the inputs from those of the outputs. It runs with autocast off,
// and records only under create_graph. A gradient may have the broadcast shape or another floating
// dtype: the engine sums and casts it to the input's.
using Rule = std::function<Grads(const Grads& dy, Needs needs)>;

bool any_requires_grad(std::span<const Tensor> inputs);
void attach(const char* op, std::span<Tensor* const> outputs, std::span<const Tensor> inputs,
            Rule rule);

struct BackwardOptions {
    bool retain_graph = false;  // keep what was saved, for another pass
    bool create_graph =
        false;  // record the rules: gradients can be differentiated (implies retain)
};

// Accumulates into the leaves' grad the gradient of sum(roots[i] * gradients[i]). An undefined
// gradient stands for one and needs a one-element root. Throws UsageError where no root requires a
// gradient, or where the graph was freed by an earlier pass.
void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {},
              BackwardOptions options = {});

// The gradients themselves, of the inputs named, leaving every grad() alone. An input that was not
// reached gets an undefined Tensor.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients = {}, BackwardOptions options = {});

// Removes its hook when it is destroyed or told to.
class HookHandle {
  public:
    HookHandle() = default;
    explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
    HookHandle(HookHandle&& other) noexcept : remove_(std::exchange(other.remove_, {})) {}
    HookHandle& operator=(HookHandle&& other) noexcept {
        remove();
        remove_ = std::exchange(other.remove_, {});
        return *this;
    }
    ~HookHandle() { remove(); }
    void remove() {
        if (auto f = std::exchange(remove_, {})) f();
    }

  private:
    std::function<void()> remove_;
};

// hook(leaf) runs inside backward() when the leaf's gradient of this pass is final and accumulated.
[[nodiscard]] HookHandle on_leaf_final(const Tensor& leaf, std::function<void(const Tensor&)> hook);
// Around every accumulating backward() of this process's threads. `leaves` are those that the pass
// will reach, known before the first rule runs.
[[nodiscard]] HookHandle on_backward_begin(
    std::function<void(const std::vector<Tensor>& leaves)> hook);
[[nodiscard]] HookHandle on_backward_end(std::function<void()> hook);
// Accumulating passes that this thread is inside of: more than one where a rule runs a pass of its
// own. A hook tells by it whose pass it belongs to, and which ended by an exception.
int backward_depth();

// Nodes alive in the process: a test that ends where it began leaks no graph.
std::int64_t live_nodes();

}  // namespace autograd

// Where an op ends: gives y a history if grad mode is on and an input requires a gradient.
//
//     return record("exp", y, {x}, [y = saved(y)](const Grads& dy, Needs) -> Grads {
//         return {mul(dy[0], y)};
//     });
template <class RuleFunction>
Tensor record(const char* op, Tensor y, std::span<const Tensor> inputs, RuleFunction&& rule) {
    Tensor* const outputs[] = {&y};
    if (grad_enabled() && autograd::any_requires_grad(inputs))
        autograd::attach(op, outputs, inputs, std::forward<RuleFunction>(rule));
    return y;
}
template <class RuleFunction>
Tensor record(const char* op, Tensor y, std::initializer_list<Tensor> inputs, RuleFunction&& rule) {
    return record(op, std::move(y), std::span(inputs.begin(), inputs.size()),
                  std::forward<RuleFunction>(rule));
}
// Any number of outputs, changed in place; those that no gradient reaches come to the rule as
// undefined tensors.
template <class RuleFunction>
void record_outputs(const char* op, std::span<Tensor* const> outputs,
                    std::initializer_list<Tensor> inputs, RuleFunction&& rule) {
    const std::span<const Tensor> from(inputs.begin(), inputs.size());
    if (grad_enabled() && autograd::any_requires_grad(from))
        autograd::attach(op, outputs, from, std::forward<RuleFunction>(rule));
}
template <class RuleFunction>
void record_outputs(const char* op, std::initializer_list<Tensor*> outputs,
                    std::initializer_list<Tensor> inputs, RuleFunction&& rule) {
    record_outputs(op, std::span<Tensor* const>(outputs.begin(), outputs.size()), inputs,
                   std::forward<RuleFunction>(rule));
}

// A rule whose backward kernel has no rule of its own calls this under create_graph: throws
// UsageError "op: can't be differentiated twice: ...".
void refuse_double_backward(const char* op);

}  // namespace axle::inline v0
