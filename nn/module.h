// Module: a plain struct that names its parameters, buffers and children in one `visit`.
//
//     struct Mlp : nn::Model<Mlp> {
//         nn::Linear hidden, out;
//         Mlp(int in, int width, int classes) : hidden(in, width), out(width, classes) {}
//         Tensor forward(const Tensor& x) { return out(relu(hidden(x))); }
//         void visit(nn::Visitor& v) override { v("hidden", hidden), v("out", out); }
//     };
//
// Names, state dicts, moving, counting, freezing and cloning all come from visit.
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

namespace axle::inline v0::nn {

class Module;

// What a module's visit is called with. Undefined tensors (a Linear without bias) are passed over.
class Visitor {
  public:
    virtual ~Visitor() = default;
    void operator()(std::string_view name, Tensor& parameter) {
        if (parameter.defined()) on_parameter(name, parameter);
    }
    void operator()(std::string_view name, Module& child) { on_child(name, child); }
    // State that is saved and moved but not trained.
    void buffer(std::string_view name, Tensor& tensor) {
        if (tensor.defined()) on_buffer(name, tensor);
    }

  protected:
    virtual void on_parameter(std::string_view name, Tensor& parameter) = 0;
    virtual void on_buffer(std::string_view name, Tensor& buffer) = 0;
    virtual void on_child(std::string_view name, Module& child) = 0;
};

// Name and tensor, in the order of visit.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
    bool strict = true;  // missing or unexpected names are errors
};
// What load_state_dict did not match; empty after a strict load.
struct LoadReport {
    std::vector<std::string> missing;     // in the module, not in the state
    std::vector<std::string> unexpected;  // in the state, not in the module
};

// How an Accelerator acts around the outermost call of a prepared model.
struct Gate {
    std::optional<DType> autocast;
    std::optional<bool> cache_enabled = {};  // as AutocastGuard's
    bool outputs_to_f32 = true;
    std::function<void(Module&)> before_forward;
};

// What a layer's tensors are kept in, and converted to for each of its calls.
struct LayerCast {
    DType storage, compute;
};

// Modules can be moved, not copied: a copy would silently share its weights. clone() makes a twin
// with weights of its own. One module may be used by one thread at a time.
class Module {
  public:
    virtual ~Module() = default;
    Module(Module&&) = default;
    Module& operator=(Module&&) = default;
    Module& operator=(const Module&) = delete;

    virtual void visit(Visitor& v) = 0;

    // Dotted names from the root ("h.0.attn.c_attn.weight"). A tied parameter comes once, by its
    // first name; named_state has every name.
    std::vector<Tensor> parameters() const;
    StateDict named_parameters() const;
    StateDict named_buffers() const;
    // Parameters and buffers, tied ones under each of their names. The tensors are the module's
    // own.
    StateDict state_dict() const;
    // What a file needs: parameters and buffers, tied ones by their first name alone.
    StateDict saved_state() const;
    // Copies values into the module's tensors (converted to their dtype). Throws before anything is
    // written: ShapeError for a different shape, ValueError listing the names for a strict
    // mismatch, with the nearest for each. A tied parameter needs one of its names only.
    LoadReport load_state_dict(const StateDict& state, LoadOptions options = {});

    // This module and everything below it, parents first, with dotted names ("" for this one).
    std::vector<std::pair<std::string, Module*>> named_modules();

    // Moves every parameter and buffer, or converts the floating ones, with their gradients and
    // keeping their identity.
    void to(Device device);
    void to(DType dtype);
    void train(bool on = true);
    void eval() { train(false); }
    bool is_training() const { return training_; }
    void requires_grad_(bool value = true);
    void zero_grad() const;
    // Elements of all parameters, tied ones once.
    std::int64_t num_parameters() const;

    // Set by Accelerator::prepare; null in a model that was not prepared.
    void set_gate(std::shared_ptr<const Gate> gate) { gate_ = std::move(gate); }
    const std::shared_ptr<const Gate>& gate() const { return gate_; }
    // nn/precision/layerwise_casting.h sets it. The tensors are converted at once.
    void set_layer_cast(std::optional<LayerCast> cast);
    const std::optional<LayerCast>& layer_cast() const { return layer_cast_; }

  protected:
    Module() = default;
    // For clone() alone: throws UsageError elsewhere.
    Module(const Module& other);

    // Runs f as a public entry of the model. The outermost entry of a prepared model opens autocast
    // and gives its half-precision outputs back as f32.
    template <class F>
    auto enter(F&& f) {
        Entry entry(*this);
        if constexpr (std::is_void_v<decltype(f())>)
            f();
        else
            return entry.out(f());
    }

    // While one lives, this thread may copy modules.
    struct Cloning {
        Cloning();
        ~Cloning();
    };
    // Gives every tensor below it memory of its own, keeping ties.
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
        // Counts the prepared models that this thread is inside of.
        struct Inside {
            Inside();
            ~Inside();
            Inside(const Inside&) = delete;
            Inside& operator=(const Inside&) = delete;
        };
        // Casts to its compute dtype stand for the tensors of a module with a LayerCast.
        struct Computing {
            explicit Computing(Module& layer);
            ~Computing();
            Computing(const Computing&) = delete;
            Computing& operator=(const Computing&) = delete;
            struct Kept;
            std::unique_ptr<Kept> kept;
        };
        std::optional<Computing> computing_;
        std::optional<Inside> inside_;
        std::optional<AutocastGuard> autocast_;
        bool converts_ = false;
    };

    std::shared_ptr<const Gate> gate_;
    std::optional<LayerCast> layer_cast_;
    bool training_ = true;
};

// The base of every module: model(x) calls forward(x), whatever its arguments, through the door.
template <class Derived>
class Model : public Module {
  public:
    template <class... Args>
    auto operator()(Args&&... args) {
        return enter([&] { return self().forward(std::forward<Args>(args)...); });
    }

    // A twin: the same values in memory of its own, ties kept, without gradients or a gate.
    Derived clone() const {
        Derived twin = [this] {
            const Cloning scope;
            return Derived(static_cast<const Derived&>(*this));
        }();
        twin.separate_tensors();
        return twin;
    }

  private:
    Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace axle::inline v0::nn
