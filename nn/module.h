// Module: the base of models and layers. A module is a plain struct that lists its parameters,
// buffers and children in visit().
//
//     struct Mlp : nn::Model<Mlp> {
//         nn::Linear hidden, out;
//         Mlp(int in, int width, int classes) : hidden(in, width), out(width, classes) {}
//         Tensor forward(const Tensor& x) { return out(relu(hidden(x))); }
//         void visit(nn::Visitor& v) override { v("hidden", hidden), v("out", out); }
//     };
//
// Names, state dicts, device and dtype conversion, counting, freezing and cloning are all derived
// from visit().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/ops.h"
#include "core/tensor.h"

namespace axle::nn {

class Module;

// Receives the members of a module in visit(). Undefined tensors (such as the bias of a Linear
// without bias) are skipped.
class Visitor {
  public:
    virtual ~Visitor() = default;
    void operator()(std::string_view name, Tensor& parameter) {
        if (parameter.defined()) on_parameter(name, parameter);
    }
    void operator()(std::string_view name, Module& child) { on_child(name, child); }
    // Registers a tensor that is saved and moved with the module but not trained.
    void buffer(std::string_view name, Tensor& tensor) {
        if (tensor.defined()) on_buffer(name, tensor);
    }

  protected:
    virtual void on_parameter(std::string_view name, Tensor& parameter) = 0;
    virtual void on_buffer(std::string_view name, Tensor& buffer) = 0;
    virtual void on_child(std::string_view name, Module& child) = 0;
};

// Names and tensors, in the order of visit().
using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
    bool strict = true;  // throw if names are missing or unexpected
};
// The names that load_state_dict could not match. Both lists are empty after a strict load.
struct LoadReport {
    std::vector<std::string> missing;     // names in the module but not in the state
    std::vector<std::string> unexpected;  // names in the state but not in the module
};

// Actions around the outermost forward call of a prepared model, set by the Accelerator.
struct ForwardHooks {
    std::optional<DType> autocast;
    std::optional<bool> cache_enabled = {};  // as in AutocastGuard
    bool outputs_to_f32 = true;
    std::function<void(Module&)> before_forward;
};

// The dtype in which a layer stores its tensors, and the dtype they are cast to during its calls.
struct LayerCast {
    DType storage, compute;
};

// The base of all modules. Modules can be moved but not copied, because a copy would silently share
// its weights; Model::clone() creates a copy with weights of its own. A module must be used by one
// thread at a time.
class Module {
  public:
    virtual ~Module() = default;
    Module(Module&&) = default;
    Module& operator=(Module&&) = default;
    Module& operator=(const Module&) = delete;

    virtual void visit(Visitor& v) = 0;

    // Return the parameters or buffers, with dotted names relative to this module
    // ("h.0.attn.c_attn.weight"). A tied parameter appears once, under its first name; state_dict()
    // has all names.
    std::vector<Tensor> parameters() const;
    StateDict named_parameters() const;
    StateDict named_buffers() const;
    // Returns parameters and buffers, tied ones under each of their names. The tensors share memory
    // with the module.
    StateDict state_dict() const;
    // Returns the parameters and buffers to write to a file: tied ones under their first name only.
    StateDict saved_state() const;
    // Copies the values into the module's tensors, converted to their dtypes. For a tied parameter,
    // one of its names is sufficient. Throws ShapeError if a shape differs, DTypeError if a dtype
    // cannot be converted, and ValueError with the names (and the most similar existing name of
    // each) if names do not match in strict mode. If it throws, no tensor has been changed.
    LoadReport load_state_dict(const StateDict& state, LoadOptions options = {});

    // Returns this module ("") and all modules below it with dotted names, parents first.
    std::vector<std::pair<std::string, Module*>> named_modules();

    // Moves all parameters, buffers and gradients to a device, or converts the floating ones to a
    // dtype. Tensor identity is preserved.
    void to(Device device);
    void to(DType dtype);
    void train(bool on = true);
    void eval() { train(false); }
    bool is_training() const { return training_; }
    void requires_grad_(bool value = true);
    void zero_grad() const;
    // Returns the number of elements of all parameters. Tied parameters count once.
    std::int64_t num_parameters() const;

    // Set by Accelerator::prepare; null if the model is not prepared.
    void set_hooks(std::shared_ptr<const ForwardHooks> hooks) { hooks_ = std::move(hooks); }
    const std::shared_ptr<const ForwardHooks>& hooks() const { return hooks_; }
    // Set by nn/precision/layerwise_casting.h. Converts the module's tensors immediately.
    void set_layer_cast(std::optional<LayerCast> cast);
    const std::optional<LayerCast>& layer_cast() const { return layer_cast_; }

  protected:
    Module() = default;
    // Used by clone() only; throws UsageError otherwise.
    Module(const Module& other);

    // Runs f as a public entry point of the model. In a prepared model, the outermost entry point
    // enables autocast and converts half-precision outputs to f32.
    template <class F>
    auto enter(F&& f) {
        Entry entry(*this);
        if constexpr (std::is_void_v<decltype(f())>)
            f();
        else
            return entry.out(f());
    }

    // Allows this thread to copy modules for the lifetime of the object.
    struct Cloning {
        Cloning();
        ~Cloning();
    };
    // Gives every tensor in this module memory of its own. Tied tensors stay tied.
    void separate_tensors();

  private:
    class Entry {
      public:
        explicit Entry(Module& module);
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;

        Tensor out(const Tensor& y) const {
            return converts_ && y.defined() && is_half(y.dtype()) ? axle::to(y, f32) : y;
        }
        std::vector<Tensor> out(std::vector<Tensor> ys) const {
            for (Tensor& y : ys) y = out(y);
            return ys;
        }
        template <class A, class B>
        std::pair<A, B> out(std::pair<A, B> ys) const {
            return {out(std::move(ys.first)), out(std::move(ys.second))};
        }
        template <class... T>
        std::tuple<T...> out(std::tuple<T...> ys) const {
            return std::apply([&](T&... y) { return std::tuple<T...>(out(std::move(y))...); }, ys);
        }
        template <class T>
        T out(T y) const {
            return y;
        }

      private:
        // Counts the active calls of prepared models on this thread.
        struct ActiveCall {
            ActiveCall();
            ~ActiveCall();
            ActiveCall(const ActiveCall&) = delete;
            ActiveCall& operator=(const ActiveCall&) = delete;
        };
        // Replaces the parameters of a module with a LayerCast by casts to its compute dtype for
        // the lifetime of the object.
        struct ComputeDtypeScope {
            explicit ComputeDtypeScope(Module& layer);
            ~ComputeDtypeScope();
            ComputeDtypeScope(const ComputeDtypeScope&) = delete;
            ComputeDtypeScope& operator=(const ComputeDtypeScope&) = delete;
            struct Replaced;
            std::unique_ptr<Replaced> replaced;
        };
        std::optional<ComputeDtypeScope> compute_dtype_;
        std::optional<ActiveCall> active_;
        std::optional<AutocastGuard> autocast_;
        bool converts_ = false;
    };

    std::shared_ptr<const ForwardHooks> hooks_;
    std::optional<LayerCast> layer_cast_;
    bool training_ = true;
};

// The base class of user-defined modules (CRTP): model(args...) calls forward(args...) inside
// enter().
template <class Derived>
class Model : public Module {
  public:
    template <class... Args>
    auto operator()(Args&&... args) {
        return enter([&] { return self().forward(std::forward<Args>(args)...); });
    }

    // Returns a copy with the same values in memory of its own. Tied parameters stay tied;
    // gradients and hooks are not copied.
    Derived clone() const {
        Derived copy = [this] {
            const Cloning scope;
            return Derived(static_cast<const Derived&>(*this));
        }();
        copy.separate_tensors();
        return copy;
    }

  private:
    Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace axle::nn
