// Functions that are called around calls of a module: the hooks of prepared models, of sharded
// training, and of programs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/autograd/forward_context.h"
#include "core/tensor.h"

namespace axle::nn {

class Module;

// An interface that is notified when a module with hooks is moved or loses its hooks. The owner of
// the hooks implements this interface, so that the owner's reference to the module stays valid.
struct ModuleObserver {
    virtual ~ModuleObserver() = default;
    // Called when the module is destroyed, and when its hooks are removed or replaced by the hooks
    // of another owner.
    virtual void detached(const Module& module) noexcept = 0;
    // Called after `from` was moved to `to`. The hooks are then attached to `to`.
    virtual void moved(const Module& from, Module& to) noexcept = 0;
};

// Settings for calls of a prepared model. They apply to the outermost call of a prepared model on a
// thread. The Accelerator sets them.
struct ForwardHooks {
    std::optional<DType> autocast;  // if unset, the call does not change autocast
    // Whether autocast caches casts. If unset, or if autocast is unset, the call does not change
    // it.
    std::optional<bool> cache_enabled = {};
    bool outputs_to_f32 = true;  // converts half-precision outputs, if autocast is set
    // The dtype of all floating outputs. Takes precedence over outputs_to_f32.
    std::optional<DType> output_dtype = {};
    std::function<void(Module&)> before_forward = {};  // called before forward()
    std::shared_ptr<ForwardContext> context = {};      // set during the call, unless it is null
    std::shared_ptr<ModuleObserver> observer = {};
};

// Functions that are called before and after every call of a module, even if another module calls
// it. `after` must not throw. It is also called if the call throws, but not if `before` throws.
struct CallHooks {
    std::function<void(Module&)> before = {};
    std::function<void(Module&)> after = {};
};

// Hooks that programs add to a module. They run in each call of the module, in the order of
// registration, outside of the ForwardHooks and CallHooks of the module. `inputs` are the Tensor
// arguments of the call, and `outputs` the defined tensors in its result. A hook can replace
// elements of a vector that is not const. The call, or the backward pass, throws UsageError if a
// hook changes the number of elements.
//
//     auto handle = layer.register_forward_hook(
//         [&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
//             activations.push_back(outputs[0].detach());
//         });
using ForwardPreHook = std::function<void(Module& module, std::vector<Tensor>& inputs)>;
using ForwardHook = std::function<void(Module& module, const std::vector<Tensor>& inputs,
                                       std::vector<Tensor>& outputs)>;
// Called in backward passes, when the gradients of the inputs are known. Gradients are undefined
// for tensors that get none. If no input requires a gradient, the hook is called when the gradients
// of the outputs are known.
using FullBackwardHook = std::function<void(Module& module, std::vector<Tensor>& input_gradients,
                                            const std::vector<Tensor>& output_gradients)>;
struct RegisteredHooks;

}  // namespace axle::nn
