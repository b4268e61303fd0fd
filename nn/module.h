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

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/forward_context.h"
#include "core/memory/owning_ptr.h"
#include "core/ops.h"
#include "core/tensor.h"
#include "core/tree/structure.h"
#include "core/tree/tree_utils.h"

namespace axle::nn {

class Module;

struct BufferOptions {
    // If false, the buffer is not in state_dict() and load_state_dict() does not need it, for
    // example because the constructor can compute it. It is still moved and cloned with the module.
    bool persistent = true;
    // If false, load_state_dict() does not need the buffer, for example because older files do not
    // have it. The buffer then keeps its value.
    bool required = true;
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
    // Exclude a member module, or a tensor that requires a gradient but is not a parameter of this
    // module (for example a weight of a teacher), from training, saving and moving.
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

// Names and tensors, in the order of visit().
using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct StateDictOptions {
    // If true, state_dict() returns the module's tensors themselves, with their gradients.
    bool keep_vars = false;
};

struct LoadOptions {
    bool strict = true;  // if true, throws ValueError if names are missing or unexpected
};
// The names that load_state_dict() could not match. Both lists are empty if `strict` was true.
struct LoadReport {
    std::vector<std::string> missing;     // names in the module but not in the state
    std::vector<std::string> unexpected;  // names in the state but not in the module
};

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
    std::optional<DType> autocast;           // if unset, the call does not change autocast
    std::optional<bool> cache_enabled = {};  // whether casts are cached; unset: no change
    bool outputs_to_f32 = true;              // converts half-precision outputs, if autocast is set
    // The dtype of all floating outputs. Takes precedence over outputs_to_f32.
    std::optional<DType> output_dtype = {};
    std::function<void(Module&)> before_forward = {};  // called before forward()
    std::shared_ptr<ForwardContext> context = {};      // set during the call, unless it is null
    std::shared_ptr<ModuleObserver> observer = {};
};

// Functions that are called before and after every call of a module, also if another module calls
// it. `after` is also called if the call throws, and must not throw itself.
struct CallHooks {
    std::function<void(Module&)> before = {};
    std::function<void(Module&)> after = {};
};

// The dtype in which a layer stores its tensors, and the dtype to which they are cast during its
// calls.
struct LayerCast {
    DType storage, compute;
};

// The base of all modules. Modules can be moved but not copied, because a copy would silently share
// its weights; Model::clone() creates a copy with weights of its own. A module must be used by one
// thread at a time.
class Module {
  public:
    virtual ~Module();
    Module(Module&& other) noexcept;
    Module& operator=(Module&& other) noexcept;
    Module& operator=(const Module&) = delete;

    // Calls v(name, member) for each parameter and each child, v.buffer(name, member) for each
    // buffer, and v.ignore(member) for each module or tensor to leave out. Must not modify the
    // module.
    virtual void visit(Visitor& v) = 0;

    // Return the parameters or buffers, which share memory with the module. Names are relative to
    // this module and dotted, for example "h.0.attn.c_attn.weight". A tied parameter is returned
    // once, under its first name.
    std::vector<Tensor> parameters() const;
    StateDict named_parameters() const;
    StateDict named_buffers() const;
    // Returns parameters and persistent buffers. A tied tensor is returned under each of its names.
    // The tensors share memory with the module, until it is moved or converted, but are detached:
    // they do not require a gradient and can be changed in place. All names of a tied tensor refer
    // to the same detached tensor. Throws UsageError if visit() omits a member (check_visit()).
    StateDict state_dict(StateDictOptions options = {}) const;
    // Returns state_dict() for writing to a file: a tied tensor is returned once, under its first
    // name.
    StateDict saved_state() const;
    // Copies the values of `state` into the module's tensors and converts them to the dtypes of
    // these tensors. Allocates memory for tensors on the meta device. For a tied parameter, one of
    // its names is sufficient. Throws ShapeError if a shape differs and DTypeError if a dtype
    // cannot be converted. In strict mode, throws ValueError if names are missing or unexpected;
    // the message lists up to eight names of each kind, with similar names. No tensor is changed if
    // one of these errors is thrown.
    LoadReport load_state_dict(const StateDict& state, LoadOptions options = {});

    // Returns this module, whose name is "", and all modules below it with dotted names. Parents
    // come before their children. A module with several names is returned under each of them.
    std::vector<std::pair<std::string, Module*>> named_modules();
    // Returns the modules that visit() names, without the modules below them. A module with several
    // names is returned once, under its first name.
    std::vector<std::pair<std::string, Module*>> named_children();
    std::vector<Module*> children();
    // Calls f for all modules below this module and then for this module. Children come before
    // their parents, as in PyTorch.
    //     model.apply([](nn::Module& module) {
    //         if (auto* layer = dynamic_cast<nn::Linear*>(&module)) init::zeros_(layer->weight);
    //     });
    void apply(const std::function<void(Module&)>& f);

    // Moves all parameters, buffers and gradients to a device. The tensor objects stay the same, so
    // optimizers remain valid.
    void to(Device device);
    // Converts all floating parameters, buffers and gradients to a dtype. The tensor objects stay
    // the same. Throws DTypeError unless the dtype is floating.
    void to(DType dtype);
    // Sets the training mode of this module and of all modules below it.
    void train(bool on = true);
    void eval() { train(false); }
    bool is_training() const { return training_; }
    void requires_grad_(bool value = true);
    // Removes the gradients of all parameters.
    void zero_grad() const;
    // Returns the number of elements of all parameters. Tied parameters count once.
    std::int64_t num_parameters() const;

    // Accelerator::prepare sets these hooks. They are null if the model is not prepared.
    void set_hooks(std::shared_ptr<const ForwardHooks> hooks);
    const std::shared_ptr<const ForwardHooks>& hooks() const { return hooks_; }
    // Sets the functions to call around every call of this module; null removes them. Sharded
    // training sets them.
    void set_call_hooks(std::shared_ptr<const CallHooks> hooks) { call_hooks_ = std::move(hooks); }
    const std::shared_ptr<const CallHooks>& call_hooks() const { return call_hooks_; }
    // Sets whether calls of this module keep only their arguments for backward, which runs
    // forward() again (activation checkpointing, see axle::checkpoint()). Has an effect only on
    // classes that derive from Model, if forward() returns a Tensor and the arguments can be
    // copied. While gradients are not recorded, and in evaluation mode, forward() runs as usual.
    void set_checkpointing(bool on = true) { checkpoints_ = on; }
    bool is_checkpointing() const { return checkpoints_; }
    // Sets the dtypes for layerwise casting (nn/precision/layerwise_casting.h) and converts the
    // module's tensors to the storage dtype. nullopt ends layerwise casting and leaves the tensors
    // as they are. Throws DTypeError unless the storage dtype is floating.
    void set_layer_cast(std::optional<LayerCast> cast);
    const std::optional<LayerCast>& layer_cast() const { return layer_cast_; }

    // Returns the address and the size in bytes of the complete object, in which check_visit()
    // searches for members. Returns {nullptr, 0} if they are unknown; check_visit() then does not
    // search this object.
    virtual std::pair<const void*, std::size_t> object_memory() const { return {nullptr, 0}; }
    // Throws UsageError if this module, or a module below it, has a member that visit() neither
    // names nor ignores, and the member is a module or a parameter (a Tensor that is a leaf and
    // requires a gradient). A parameter that another module in the tree names is accepted, and so
    // are the parameters of ignored modules. The message contains the type and the byte position of
    // the member. Also throws UsageError if visit() uses a name twice. The check does not include
    // tensors that do not require a gradient (buffers and frozen parameters), elements of vectors,
    // and objects to which pointers refer.
    void check_visit() const;

    // Returns the types of the modules that must not be split when the model is divided, for
    // example the blocks of a transformer. A type is given by its name in Transformers
    // (_no_split_modules), such as "GPT2Block", or by its name in this program. Sharded training
    // gathers the parameters of each of these modules together. The default is an empty list.
    virtual std::vector<std::string> no_split_modules() const { return {}; }

  protected:
    Module();
    // Only clone() may call this constructor. Throws UsageError otherwise.
    Module(const Module& other);

    // Runs f as a public entry point of the model and returns the result of f. In a prepared model,
    // the outermost entry point enables autocast and converts the dtypes of outputs, as
    // ForwardHooks specify.
    template <class F>
    auto enter(F&& f) {
        Entry entry(*this);
        if constexpr (std::is_void_v<decltype(f())>)
            f();
        else
            return entry.out(f());
    }

    // Called before the members of a module are constructed in the given memory. Records the bytes
    // that look like a Tensor, so that check_visit() does not report them.
    static void remember_old_bytes(void* memory, std::size_t size) noexcept;

    // Allows this thread to copy modules for the lifetime of the object.
    struct Cloning {
        Cloning();
        ~Cloning();
    };
    // Copies every tensor of this module, which is a copy of `original`, to new memory. Tied
    // tensors stay tied. Throws UsageError, and changes nothing, if both modules share a module
    // below them.
    void separate_tensors(const Module& original);

  private:
    class Entry {
      public:
        explicit Entry(Module& module);
        ~Entry();
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;

        Tensor out(const Tensor& y) const {
            return converts_ && y.defined() && is_converted(y.dtype()) ? axle::to(y, output_dtype_)
                                                                       : y;
        }
        template <class A, class B>
        std::pair<A, B> out(std::pair<A, B> ys) const {
            return {out(std::move(ys.first)), out(std::move(ys.second))};
        }
        template <class... T>
        std::tuple<T...> out(std::tuple<T...> ys) const {
            return std::apply([&](T&... y) { return std::tuple<T...>(out(std::move(y))...); }, ys);
        }
        // Converts the tensors in a value of a structured type (core/tree/structure.h). Values of
        // other types are returned unchanged.
        template <class T>
        T out(T y) const {
            if constexpr (Structured<T>) {
                if (!converts_) return y;
                return apply_as_tree(y, [this](const Tree& tree) {
                    return map_tensors(tree, [this](const Tensor& t) { return out(t); });
                });
            } else {
                return y;
            }
        }

      private:
        struct Scopes;
        bool is_converted(DType dtype) const {
            return converts_all_ ? is_floating(dtype) : is_half(dtype);
        }
        OwningPtr<Scopes> scopes_;  // null unless the module has hooks, call hooks or a LayerCast
        bool converts_ = false;
        bool converts_all_ = false;  // also outputs that are not in half precision
        DType output_dtype_ = f32;
    };

    std::shared_ptr<const ForwardHooks> hooks_;
    std::shared_ptr<const CallHooks> call_hooks_;
    std::optional<LayerCast> layer_cast_;
    bool training_ = true;
    bool checkpoints_ = false;
};

// The base class of user-defined modules (CRTP): model(args...) calls forward(args...) inside
// enter().
template <class Derived>
class Model : public Module {
  public:
    Model() { remember_old_bytes(); }
    Model(const Model& other) : Module(other) { remember_old_bytes(); }
    Model(Model&& other) noexcept : Module(std::move(other)) { remember_old_bytes(); }
    Model& operator=(Model&&) noexcept = default;

    template <class... Args>
    auto operator()(Args&&... args) {
        return enter([&] {
            if constexpr (can_checkpoint<Args...>())
                if (is_checkpointing() && is_training())
                    return checkpointed(std::forward<Args>(args)...);
            return self().forward(std::forward<Args>(args)...);
        });
    }

    std::pair<const void*, std::size_t> object_memory() const override {
        return {static_cast<const Derived*>(this), sizeof(Derived)};
    }

    // Returns a copy of the module with memory of its own. Tied parameters stay tied if visit()
    // names each of their Tensor members; gradients and hooks are not copied. Throws UsageError if
    // the copy shares a module with the original, because a member is a pointer and the type has no
    // copy constructor that clones it.
    Derived clone() const {
        Derived copy = [this] {
            const Cloning scope;
            return Derived(static_cast<const Derived&>(*this));
        }();
        copy.separate_tensors(*this);
        return copy;
    }

  private:
    Derived& self() { return static_cast<Derived&>(*this); }
    // Returns whether forward() returns a Tensor and takes constant arguments of types that can be
    // copied.
    template <class... Args>
    static constexpr bool can_checkpoint() {
        if constexpr ((std::is_copy_constructible_v<std::decay_t<Args>> && ...))
            return requires(Derived& module, const std::decay_t<Args>&... args) {
                { module.forward(args...) } -> std::same_as<Tensor>;
            };
        return false;
    }
    template <class... Args>
    Tensor checkpointed(Args&&... args) {
        const auto kept =
            std::make_shared<const std::tuple<std::decay_t<Args>...>>(std::forward<Args>(args)...);
        return checkpoint(
            [this, kept](const std::vector<Tensor>&) {
                return std::apply([this](const auto&... each) { return self().forward(each...); },
                                  *kept);
            },
            {});
    }
    // The vptr sanitizer rejects the cast while the object is under construction.
    __attribute__((no_sanitize("vptr"))) void remember_old_bytes() noexcept {
        auto* const begin = reinterpret_cast<std::byte*>(this);
        auto* const object = reinterpret_cast<std::byte*>(static_cast<Derived*>(this));
        Module::remember_old_bytes(begin,
                                   static_cast<std::size_t>(object + sizeof(Derived) - begin));
    }
};

}  // namespace axle::nn
