// Visitor: receives the members of a module.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace axle::nn {

class Module;

struct BufferOptions {
    // If false, the buffer is not in state_dict() and load_state_dict() does not need it, for
    // example because the constructor can compute it. It is still moved and cloned with the module.
    bool persistent = true;
    // If false, load_state_dict() does not need the buffer, for example because older files do not
    // have it. The buffer then keeps its value.
    bool required = true;
    // If true, the values never change in training, for example because they are a quantized
    // weight. Then Module::to(DType) keeps the dtype, and processes receive the buffer only once.
    bool constant = false;
};

// Receives the members of a module in visit(). Undefined tensors (such as the bias of a Linear
// without bias) are skipped. A tensor is trained only if it requires a gradient: create a parameter
// with `Tensor scale = ones({width}, {.requires_grad = true})`.
class Visitor {
  public:
    virtual ~Visitor() = default;
    void operator()(std::string_view name, Tensor& parameter) {
        if (parameter.defined()) on_parameter(name, parameter);
    }
    void operator()(std::string_view name, Module& child) { on_child(name, child); }
    // Registers a tensor that is saved and moved with the module but not trained.
    void buffer(std::string_view name, Tensor& tensor, BufferOptions options = {}) {
        if (tensor.defined()) on_buffer(name, tensor, options);
    }
    // Exclude a member from training, saving and moving: a module, or a tensor that requires a
    // gradient but is not a parameter of this module (for example a weight of a teacher).
    // Accelerator::prepare() and state_dict() throw UsageError for a member module or parameter
    // that visit() neither names nor ignores.
    void ignore(Module& child) { on_ignored(child); }
    void ignore(Tensor& tensor) {
        if (tensor.defined()) on_ignored_tensor(tensor);
    }

  protected:
    virtual void on_parameter(std::string_view name, Tensor& parameter) = 0;
    virtual void on_buffer(std::string_view name, Tensor& buffer, BufferOptions options) = 0;
    virtual void on_child(std::string_view name, Module& child) = 0;
    virtual void on_ignored(Module&) {}
    virtual void on_ignored_tensor(Tensor&) {}
};

}  // namespace axle::nn
