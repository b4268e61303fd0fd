// The scopes around a call of a module: hooks, autocast and the dtype of a LayerCast.
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "nn/module.h"

namespace axle::nn {
namespace {

thread_local int entered = 0;  // number of active calls of prepared models on this thread

// Calls f(parameter) for all parameters of a module and of the modules below it. A tied parameter
// is visited once for each name.
class ParameterWalker : public Visitor {
  public:
    explicit ParameterWalker(std::function<void(Tensor&)> f) : f_(std::move(f)) {}

  protected:
    void on_parameter(std::string_view, Tensor& parameter) override { f_(parameter); }
    void on_buffer(std::string_view, Tensor&, BufferOptions) override {}
    void on_child(std::string_view, Module& child) override { child.visit(*this); }

  private:
    std::function<void(Tensor&)> f_;
};

// Counts the active calls of prepared models on this thread.
struct ActiveCall {
    ActiveCall() { ++entered; }
    ~ActiveCall() { --entered; }
    ActiveCall(const ActiveCall&) = delete;
    ActiveCall& operator=(const ActiveCall&) = delete;
};

// Replaces the floating parameters of a module that has a LayerCast: for the lifetime of the scope,
// they are casts to the compute dtype.
class ComputeDtypeScope {
  public:
    ComputeDtypeScope(Module& layer, DType compute) {
        // Buffers are not replaced, because the call may write to them, for example in a
        // LinearPolicy.
        ParameterWalker walker([&](Tensor& t) {
            if (is_floating(t.dtype())) replaced_.emplace_back(&t, axle::to(t, compute));
        });
        layer.visit(walker);
        swap();
    }
    ~ComputeDtypeScope() { swap(); }
    ComputeDtypeScope(const ComputeDtypeScope&) = delete;
    ComputeDtypeScope& operator=(const ComputeDtypeScope&) = delete;

  private:
    void swap() noexcept {
        for (auto& [place, tensor] : replaced_) std::swap(*place, tensor);
    }

    // The addresses of the floating parameters, and the tensors that the next swap() stores there:
    // the casts before the first swap(), and the original tensors after it.
    std::vector<std::pair<Tensor*, Tensor>> replaced_;
};

// Calls the hooks around one call of a module.
class CallHooksScope {
  public:
    CallHooksScope(Module& module, std::shared_ptr<const CallHooks> hooks)
        : module_(module), hooks_(std::move(hooks)) {
        if (hooks_->before) hooks_->before(module_);
    }
    ~CallHooksScope() {
        if (hooks_->after) hooks_->after(module_);
    }
    CallHooksScope(const CallHooksScope&) = delete;
    CallHooksScope& operator=(const CallHooksScope&) = delete;

  private:
    Module& module_;
    std::shared_ptr<const CallHooks> hooks_;
};

}  // namespace

struct Module::Entry::Scopes {
    std::optional<CallHooksScope> call_hooks;
    std::optional<ComputeDtypeScope> compute_dtype;
    std::optional<ActiveCall> active;
    std::optional<AutocastGuard> autocast;
    std::optional<ForwardContextGuard> context;
};

Module::Entry::Entry(Module& module) {
    const ForwardHooks* hooks = module.hooks_.get();
    if (hooks == nullptr && module.call_hooks_ == nullptr && !module.layer_cast_) return;
    scopes_ = make_owning<Scopes>();
    if (module.call_hooks_ != nullptr) scopes_->call_hooks.emplace(module, module.call_hooks_);
    if (module.layer_cast_) scopes_->compute_dtype.emplace(module, module.layer_cast_->compute);
    if (hooks == nullptr) return;
    scopes_->active.emplace();
    if (entered > 1) return;
    if (hooks->before_forward) hooks->before_forward(module);
    if (hooks->context) scopes_->context.emplace(hooks->context);
    if (hooks->autocast) {
        scopes_->autocast.emplace(hooks->autocast, hooks->cache_enabled);
        converts_ = hooks->outputs_to_f32;
    }
    if (hooks->output_dtype) {
        converts_ = converts_all_ = true;
        output_dtype_ = *hooks->output_dtype;
    }
}
Module::Entry::~Entry() = default;

}  // namespace axle::nn
