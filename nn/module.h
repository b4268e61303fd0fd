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
#include "core/autograd/hook_handle.h"
#include "core/memory/owning_ptr.h"
#include "core/ops.h"
#include "core/tensor.h"
#include "nn/hooks.h"
#include "nn/results.h"
#include "nn/visitor.h"

namespace axle::nn {

// Names and tensors, in the order of visit().
using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct StateDictOptions {
    // If true, state_dict() returns the module's tensors themselves, with their gradients.
    bool keep_vars = false;
};

struct NamedBuffersOptions {
    bool include_constant = true;  // if false, leaves out buffers with BufferOptions::constant
};

struct LoadOptions {
    bool strict = true;  // if true, throws ValueError if names are missing or unexpected
};
// The names that load_state_dict() could not match. Both lists are empty if `strict` was true.
struct LoadReport {
    // Names in state_dict() but not in the given state, except for buffers that are not required
    // and for tied tensors that the state has under another name.
    std::vector<std::string> missing;
    std::vector<std::string> unexpected;  // names in the state but not in the module
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

    // Return the parameters or buffers (persistent or not), which share memory with the module.
    // Names are relative to this module and dotted, for example "h.0.attn.c_attn.weight". A tied
    // parameter is returned once, under its first name.
    std::vector<Tensor> parameters() const;
    StateDict named_parameters() const;
    StateDict named_buffers(NamedBuffersOptions options = {}) const;
    // Returns parameters and persistent buffers. A tied tensor is returned under each of its names.
    // The tensors share memory with the module, until it is moved or converted. Unless keep_vars is
    // true, they are detached: they do not require a gradient and can be changed in place. All
    // names of a tied tensor refer to the same tensor. Throws UsageError if visit() omits a member
    // (check_visit()).
    StateDict state_dict(StateDictOptions options = {}) const;
    // Returns state_dict() for writing to a file: a tied tensor is returned once, under its first
    // name.
    StateDict saved_state() const;
    // Copies the values of `state` into the module's tensors and converts them to the dtypes of
    // these tensors. Allocates memory for tensors on the meta device. For a tied parameter, one of
    // its names is sufficient. A slice of a parameter in tensor parallel training also accepts the
    // whole parameter. Throws ShapeError if a shape differs and DTypeError if a dtype cannot be
    // converted. In strict mode, throws ValueError if names are missing or unexpected; the message
    // lists up to eight names of each kind, with similar names. Throws UsageError as state_dict()
    // does. No tensor is changed if one of these errors is thrown.
    LoadReport load_state_dict(const StateDict& state, LoadOptions options = {});

    // Returns this module, whose name is "", and all modules below it with dotted names. Parents
    // come before their children. A module with several names is returned under each name.
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
    // Converts all floating parameters, buffers (except constant ones) and gradients to a dtype.
    // The tensor objects stay the same. Throws DTypeError unless the dtype is floating.
    void to(DType dtype);
    // Sets the training mode of this module and of all modules below it.
    void train(bool on = true);
    void eval() { train(false); }
    bool is_training() const { return training_; }
    // Sets whether the tensors of parameters() require a gradient.
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
    // Add hooks to calls of this module through operator(). The hook is removed when the handle is
    // destroyed, and is moved with the module; a clone has no hooks.
    [[nodiscard]] autograd::HookHandle register_forward_pre_hook(ForwardPreHook hook);
    [[nodiscard]] autograd::HookHandle register_forward_hook(ForwardHook hook);
    [[nodiscard]] autograd::HookHandle register_full_backward_hook(FullBackwardHook hook);
    // Returns whether one of these hooks is registered.
    bool has_registered_hooks() const;
    // Sets whether calls of this module keep only their arguments for backward, which runs
    // forward() again (activation checkpointing, see axle::checkpoint()). Has an effect only on
    // classes that derive from Model, if forward() returns a Tensor and takes constant arguments of
    // types that can be copied. While gradients are not recorded, and in evaluation mode, forward()
    // runs as usual.
    void set_checkpointing(bool on = true) { checkpoints_ = on; }
    bool is_checkpointing() const { return checkpoints_; }
    // Sets the dtypes for layerwise casting (nn/precision/layerwise_casting.h) and converts the
    // module's floating tensors to the storage dtype. nullopt ends layerwise casting and does not
    // convert the tensors. Throws DTypeError unless the storage dtype is floating.
    void set_layer_cast(std::optional<LayerCast> cast);
    const std::optional<LayerCast>& layer_cast() const { return layer_cast_; }

    // Returns the address and the size in bytes of the complete object, in which check_visit()
    // searches for members. Returns {nullptr, 0} if they are unknown; check_visit() then does not
    // search this object.
    virtual std::pair<const void*, std::size_t> object_memory() const { return {nullptr, 0}; }
    // Throws UsageError if this module, or a module below it, has a member that visit() neither
    // names nor ignores, and the member is a module or a parameter (a Tensor that is a leaf and
    // requires a gradient). A parameter that another module in the tree names is accepted, and so
    // are the parameters of ignored modules, and a module whose tensors are all named. The message
    // contains the type and the byte position of the member. Also throws UsageError if visit() uses
    // a name twice. The check does not include tensors that do not require a gradient (buffers and
    // frozen parameters), elements of vectors, and objects to which pointers refer.
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

    // Runs f as a public entry point of the model, with the CallHooks and the LayerCast of this
    // module, and returns the result of f. In a prepared model, the outermost entry point enables
    // autocast and converts the dtypes of outputs, as ForwardHooks specify.
    template <class F>
    auto enter(F&& f) {
        Entry entry(*this);
        if constexpr (std::is_void_v<decltype(f())>)
            f();
        else
            return entry.out(f());
    }

    // One call of a module with registered hooks. The constructor runs the hooks before the call,
    // which can replace the inputs.
    class HookedCall {
      public:
        HookedCall(Module& module, const std::vector<Tensor*>& inputs);
        // Runs the hooks after the call, which can replace the outputs.
        void finish(std::vector<Tensor>& outputs);

      private:
        Module& module_;
        std::shared_ptr<RegisteredHooks> hooks_;
        std::vector<Tensor> inputs_;
        std::shared_ptr<struct BackwardCall> backward_;  // null without backward hooks
    };

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

        // Converts the tensors in a result of a call.
        template <class T>
        T out(T y) const {
            if (!converts_) return y;
            return results::map_result(std::move(y), [this](const Tensor& t) {
                return is_converted(t.dtype()) ? axle::to(t, output_dtype_) : t;
            });
        }

      private:
        struct Scopes;
        bool is_converted(DType dtype) const {
            return converts_all_ ? is_floating(dtype) : is_half(dtype);
        }
        OwningPtr<Scopes> scopes_;  // null unless the module has hooks, call hooks or a LayerCast
        bool converts_ = false;
        bool converts_all_ = false;  // whether all floating outputs are converted
        DType output_dtype_ = f32;
    };

    std::shared_ptr<const ForwardHooks> hooks_;
    RegisteredHooks& registered_hooks();

    std::shared_ptr<const CallHooks> call_hooks_;
    std::shared_ptr<RegisteredHooks> registered_hooks_;  // null until the first hook is added
    std::optional<LayerCast> layer_cast_;
    bool training_ = true;
    bool checkpoints_ = false;
};

// The base class of user-defined modules (CRTP): model(args...) calls forward(args...) inside
// enter(), between the registered hooks.
template <class Derived>
class Model : public Module {
  public:
    Model() { remember_old_bytes(); }
    Model(const Model& other) : Module(other) { remember_old_bytes(); }
    Model(Model&& other) noexcept : Module(std::move(other)) { remember_old_bytes(); }
    Model& operator=(Model&&) noexcept = default;

    template <class... Args>
    auto operator()(Args&&... args) {
        if (has_registered_hooks()) return hooked<Args...>(std::forward<Args>(args)...);
        return entered(std::forward<Args>(args)...);
    }

    std::pair<const void*, std::size_t> object_memory() const override {
        // With the conversion to void*, all modules use the same constructor of the pair.
        return {static_cast<const void*>(static_cast<const Derived*>(this)), sizeof(Derived)};
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
    template <class... Args>
    auto entered(Args&&... args) {
        return enter([&] {
            if constexpr (can_checkpoint<Args...>())
                if (is_checkpointing() && is_training())
                    return checkpointed(std::forward<Args>(args)...);
            return self().forward(std::forward<Args>(args)...);
        });
    }
    // An argument of a call with hooks, which can replace tensors.
    template <class Arg>
    using HookedArgument =
        std::conditional_t<std::is_same_v<std::remove_cvref_t<Arg>, Tensor>, Tensor, Arg&&>;
    // Calls the module and runs the registered hooks.
    template <class... Args>
    auto hooked(HookedArgument<Args>... args) {
        std::vector<Tensor*> inputs;
        const auto add = [&]<class T>(T& argument) {
            if constexpr (std::is_same_v<T, Tensor>) inputs.push_back(&argument);
        };
        (add(args), ...);
        HookedCall call(*this, inputs);
        std::vector<Tensor> outputs;
        if constexpr (std::is_void_v<decltype(entered(static_cast<Args&&>(args)...))>) {
            entered(static_cast<Args&&>(args)...);
            call.finish(outputs);
        } else {
            auto result = entered(static_cast<Args&&>(args)...);
            auto same = results::map_result(std::move(result), [&](const Tensor& t) {
                outputs.push_back(t);
                return t;
            });
            call.finish(outputs);
            return results::map_result(
                std::move(same),
                [&, i = std::size_t{0}](const Tensor&) mutable { return outputs[i++]; });
        }
    }
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
