// Reverse-mode differentiation over recorded ops.
//
// Each recorded op creates a Node, which has edges to the origins of its inputs and a gradient
// rule. backward() first counts the in-edges of all reachable nodes and leaves, without recursion.
// When the count of a node reaches zero, its rule runs, unless no gradient has reached the node.
// When the count of a leaf reaches zero, its gradient is final.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/autograd/hook_handle.h"
#include "core/autograd/rule.h"
#include "core/tensor.h"

namespace axle {

// Returns whether ops on this thread are recorded.
bool grad_enabled();

// Sets grad_enabled() for this thread while the guard exists.
class GradMode {
  public:
    [[nodiscard]] explicit GradMode(bool enabled);
    ~GradMode();
    GradMode(const GradMode&) = delete;
    GradMode& operator=(const GradMode&) = delete;

  private:
    bool before_;
};
struct NoGrad : GradMode {
    [[nodiscard]] NoGrad() : GradMode(false) {}
};

// A tensor saved for the backward pass. An input keeps its history. An output is saved without its
// history, to avoid a reference cycle. get() throws UsageError if the values were changed in place,
// or the storage was replaced, after the tensor was saved. If hooks packed the tensor, get() does
// not check this, but throws UsageError if rules are recorded (create_graph).
class SavedTensor {
  public:
    SavedTensor() = default;
    explicit SavedTensor(const Tensor& tensor);
    // Returns the tensor, unpacked if hooks packed it, or an undefined tensor if it was undefined
    // or saved under NoGrad.
    Tensor get() const;
    operator Tensor() const { return get(); }  // NOLINT(google-explicit-constructor)

  private:
    Tensor tensor_;                     // undefined if hooks packed it
    std::weak_ptr<Impl> original_;      // the tensor; get() checks if it is an output of the node
    std::shared_ptr<Storage> storage_;  // used with version_ to detect in-place changes
    std::uint32_t version_ = 0;
    std::shared_ptr<struct PackedTensor> packed_;
};
inline SavedTensor saved(const Tensor& tensor) { return SavedTensor(tensor); }

// A pair of hooks that replace saved tensors; checkpoint() uses them. The hooks of the innermost
// guard on this thread apply. pack() receives every tensor that an op saves and returns the object
// to keep instead. unpack() restores the tensor when a rule needs it.
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

// Returns whether ops are recorded and one of the inputs is defined and requires a gradient.
bool is_recorded(std::span<const Input> inputs);

// Adds a node with the given rule to the graph, as the history of the outputs. Called by record()
// and record_outputs().
void attach(const char* op, std::span<Tensor* const> outputs, std::span<const Input> inputs,
            Rule rule);

struct BackwardOptions {
    bool retain_graph = false;  // keep saved tensors, so that another pass can run
    // If true, records the rules, so that gradients can be differentiated; implies retain_graph.
    bool create_graph = false;
};

// Accumulates the gradient of sum(roots[i] * gradients[i]) into the leaves. `gradients` is empty or
// has one element per root. If gradients[i] is undefined or `gradients` is empty, the gradient is 1
// and roots[i] must have one element. Throws UsageError if the numbers of roots and gradients
// differ, or if a root is undefined or does not require a gradient. Also throws UsageError if a
// needed gradient is missing, or if an earlier pass freed the graph. Throws ShapeError if a
// gradient does not have the shape of its root. If a rule throws, for example OutOfMemory, a part
// of the graph is freed and some leaves have accumulated their gradients. Remove these gradients
// before you repeat the forward and backward pass.
void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {},
              BackwardOptions options = {});

// Returns the gradients with respect to `inputs`, one per input, without changing grad() of any
// tensor. The gradient of an unreachable input is an undefined Tensor. Results can share memory
// with each other and with `gradients`: clone() a result before you change it in place. backward()
// documents the errors; `outputs` and `gradients` correspond to its roots and gradients.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients = {}, BackwardOptions options = {});

// Adds a hook to a leaf. backward() calls hook(leaf) in each pass, when the leaf's gradient is
// final and accumulated, but not if the leaf gets no gradient. A hook can remove itself, and add
// hooks, which are first called in the next pass. Throws UsageError if the tensor is not a leaf.
[[nodiscard]] HookHandle on_leaf_final(const Tensor& leaf, std::function<void(const Tensor&)> hook);
// A hook for the gradient of a tensor. Returns the new gradient, or an undefined Tensor to keep the
// gradient. Must not change the gradient in place.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;
// Adds a hook to a tensor (torch.Tensor.register_hook). Each pass of backward() and grad() calls
// the hook once with the whole gradient of the tensor, before the gradient is used, but not if the
// tensor gets no gradient. Hooks of one tensor run in the order of registration. The gradient of a
// half-precision leaf is in f32. A hook that was added before an in-place change of the tensor gets
// the gradient of the earlier value. For a parameter of a distributed model, it gets the gradient
// of this process. Throws UsageError unless the tensor requires a gradient and the hook is
// callable. A pass throws ShapeError, DTypeError or DeviceError if the hook returns a gradient of
// another shape, dtype or device.
[[nodiscard]] HookHandle register_hook(const Tensor& tensor, GradientHook hook);
// Makes passes of backward() and grad() add the gradient of this tensor, as hooks return it, to its
// grad(), although it is not a leaf (torch.Tensor.retain_grad). Does nothing for a leaf. Throws
// UsageError unless the tensor requires a gradient.
void retain_grad(const Tensor& tensor);
// Add hooks that run at the beginning and at the end of every pass of backward() and of
// GradientQueue::flush() (deferred.h), but not of grad(), in this process. `leaves` contains the
// leaves that the pass will reach; it is computed before the first rule runs. The end hooks do not
// run if the pass throws.
[[nodiscard]] HookHandle on_backward_begin(
    std::function<void(const std::vector<Tensor>& leaves)> hook);
[[nodiscard]] HookHandle on_backward_end(std::function<void()> hook);
// Returns the number of passes of backward() and GradientQueue::flush() that are active on this
// thread; it is more than one if a rule calls backward(). A begin hook can store the number. A
// later hook that finds the same number belongs to the same pass. If a begin hook finds a number
// that is not larger than the stored number, the stored pass ended with an exception.
int backward_depth();

// Sets whether backward() and grad() check for NaN, in all threads of the process (as PyTorch's
// set_detect_anomaly does). While detection is on, a pass throws NumericsError if a rule returns
// NaN in a gradient, or if a root or its gradient contains NaN. The message names the op of the
// rule, and the op of the forward pass that first made a NaN, if this op was recorded while
// detection was on. Training becomes much slower, because the check reads every result and waits
// for the GPU. The default is false.
void set_detect_anomaly(bool on);
bool is_anomaly_detection_enabled();

// Turns anomaly detection on or off, and restores the earlier setting when it is destroyed.
class DetectAnomaly {
  public:
    [[nodiscard]] explicit DetectAnomaly(bool on = true) : before_(is_anomaly_detection_enabled()) {
        set_detect_anomaly(on);
    }
    ~DetectAnomaly() { set_detect_anomaly(before_); }
    DetectAnomaly(const DetectAnomaly&) = delete;
    DetectAnomaly& operator=(const DetectAnomaly&) = delete;

  private:
    bool before_;
};

// Returns the number of nodes that exist in the process. Tests use it to detect leaked graphs.
std::int64_t live_nodes();

}  // namespace autograd

// Completes an op and returns y. If grad mode is on and an input requires a gradient, y gets a
// history with the given gradient rule:
//
//     return record("exp", y, {x}, [y = saved(y)](const Grads& dy, Needs) -> Grads {
//         return {mul(dy[0], y)};
//     });
template <class RuleFunction>
Tensor record(const char* op, Tensor y, std::initializer_list<autograd::Input> inputs,
              RuleFunction&& rule) {
    Tensor* const outputs[] = {&y};
    if (autograd::is_recorded(inputs))
        autograd::attach(op, outputs, inputs, std::forward<RuleFunction>(rule));
    return y;
}
template <class RuleFunction>
Tensor record(const char* op, Tensor y, const std::vector<Tensor>& inputs, RuleFunction&& rule) {
    Tensor* const outputs[] = {&y};
    const std::vector<autograd::Input> all(inputs.begin(), inputs.end());
    if (autograd::is_recorded(all))
        autograd::attach(op, outputs, all, std::forward<RuleFunction>(rule));
    return y;
}
// Like record(), but for any number of outputs, to which the history is added in place. If an
// output gets no gradient, the rule receives an undefined tensor for it.
template <class RuleFunction>
void record_outputs(const char* op, std::span<Tensor* const> outputs,
                    std::initializer_list<autograd::Input> inputs, RuleFunction&& rule) {
    if (autograd::is_recorded(inputs))
        autograd::attach(op, outputs, inputs, std::forward<RuleFunction>(rule));
}
template <class RuleFunction>
void record_outputs(const char* op, std::initializer_list<Tensor*> outputs,
                    std::initializer_list<autograd::Input> inputs, RuleFunction&& rule) {
    if (autograd::is_recorded(inputs))
        autograd::attach(op, outputs, inputs, std::forward<RuleFunction>(rule));
}

// Throws UsageError with the message "op: can't be differentiated twice: ...". Called by rules
// whose backward kernel is not differentiable, if the pass is recorded (create_graph).
void refuse_double_backward(const char* op);
// Throws UsageError with the message "op: can't be differentiated three times: ...". Called by
// rules of second derivatives that are not differentiable, if the pass is recorded.
void refuse_third_derivative(const char* op);

template <class Hook>
autograd::HookHandle Tensor::register_hook(Hook hook) const {
    if constexpr (std::is_void_v<std::invoke_result_t<Hook&, const Tensor&>>)
        return autograd::register_hook(*this,
                                       [hook = std::move(hook)](const Tensor& gradient) mutable {
                                           hook(gradient);
                                           return Tensor();
                                       });
    else
        return autograd::register_hook(*this, std::move(hook));
}

}  // namespace axle
