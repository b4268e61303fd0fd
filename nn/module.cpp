#include "nn/module.h"

#include <algorithm>
#include <new>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "core/text/type_name.h"
#include "nn/registered_hooks.h"
#include "nn/visit_check.h"

namespace axle::nn {
namespace {

thread_local int cloning = 0;

// The options of a buffer, or null for a parameter.
using Role = const BufferOptions*;

// Calls f(name, tensor, role) for all parameters and buffers of a module and of the modules below
// it. A tied tensor is visited once for each name.
class Walker : public Visitor {
  public:
    using F = std::function<void(const std::string&, Tensor&, Role)>;
    explicit Walker(F f) : f_(std::move(f)) {}

  protected:
    void on_parameter(std::string_view name, Tensor& parameter) override {
        f_(prefix_ + std::string(name), parameter, nullptr);
    }
    void on_buffer(std::string_view name, Tensor& buffer, BufferOptions options) override {
        f_(prefix_ + std::string(name), buffer, &options);
    }
    void on_child(std::string_view name, Module& child) override {
        const std::size_t length = prefix_.size();
        prefix_.append(name).append(".");
        child.visit(*this);
        prefix_.resize(length);
    }

  private:
    F f_;
    std::string prefix_;
};

void walk(const Module& module, Walker::F f) {
    Walker walker(std::move(f));
    const_cast<Module&>(module).visit(walker);  // NOLINT: visit() does not modify the module
}

// Collects the modules below a module, or only its children if `recurses` is false.
class ModuleWalker : public Visitor {
  public:
    explicit ModuleWalker(bool recurses = true) : recurses_(recurses) {}

    std::vector<std::pair<std::string, Module*>> found;

  protected:
    void on_parameter(std::string_view, Tensor&) override {}
    void on_buffer(std::string_view, Tensor&, BufferOptions) override {}
    void on_child(std::string_view name, Module& child) override {
        const std::size_t length = prefix_.size();
        prefix_.append(name);
        found.emplace_back(prefix_, &child);
        if (recurses_) {
            prefix_.append(".");
            child.visit(*this);
        }
        prefix_.resize(length);
    }

  private:
    bool recurses_;
    std::string prefix_;
};

// Returns a comma-separated list of the first kShown names, or "none". Adds to each name the most
// similar name in `others`, if nearest() finds one. Adds the number of names if there are more than
// kShown.
std::string list_names(const std::vector<std::string>& names,
                       const std::vector<std::string>& others) {
    if (names.empty()) return "none";
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
        text += (i == 0 ? "" : ", ") + printable(names[i]);
        if (const std::string near = nearest(names[i], others); !near.empty())
            text += str(" (nearest: ", printable(near), ")");
    }
    if (names.size() > kShown) text += str(", ... (", names.size(), " in all)");
    return text;
}

}  // namespace

Module::Module() { add_module(*this); }
Module::Module(const Module& other)
    : layer_cast_(other.layer_cast_), training_(other.training_), checkpoints_(other.checkpoints_) {
    if (cloning == 0)
        throw UsageError(
            "module: modules can't be copied, because the copy would share its weights: bind "
            "references with auto& (auto& model = accelerator.prepare(net)), or call clone()");
    add_module(*this);
}
Module::Module(Module&& other) noexcept
    : hooks_(std::exchange(other.hooks_, nullptr)),
      call_hooks_(std::exchange(other.call_hooks_, nullptr)),
      registered_hooks_(std::exchange(other.registered_hooks_, nullptr)),
      layer_cast_(other.layer_cast_),
      training_(other.training_),
      checkpoints_(other.checkpoints_) {
    try {
        add_module(*this);
    } catch (const std::bad_alloc&) {
        // A move must not throw. If memory is exhausted, the module is not added to the set of all
        // modules. check_visit() then does not find it as a member of another module.
    }
    if (registered_hooks_) registered_hooks_->module = this;
    if (hooks_ && hooks_->observer) hooks_->observer->moved(other, *this);
}
Module& Module::operator=(Module&& other) noexcept {
    if (this == &other) return *this;
    set_hooks(nullptr);
    hooks_ = std::exchange(other.hooks_, nullptr);
    call_hooks_ = std::exchange(other.call_hooks_, nullptr);
    if (registered_hooks_) registered_hooks_->module = nullptr;
    registered_hooks_ = std::exchange(other.registered_hooks_, nullptr);
    if (registered_hooks_) registered_hooks_->module = this;
    layer_cast_ = other.layer_cast_;
    training_ = other.training_;
    checkpoints_ = other.checkpoints_;
    if (hooks_ && hooks_->observer) hooks_->observer->moved(other, *this);
    return *this;
}
Module::~Module() {
    set_hooks(nullptr);
    if (registered_hooks_) registered_hooks_->module = nullptr;
    remove_module(*this);
}

void Module::set_hooks(std::shared_ptr<const ForwardHooks> hooks) {
    const auto before = std::exchange(hooks_, std::move(hooks));
    if (before && before->observer && (!hooks_ || hooks_->observer != before->observer))
        before->observer->detached(*this);
}

Module::Cloning::Cloning() { ++cloning; }
Module::Cloning::~Cloning() { --cloning; }

void Module::separate_tensors(const Module& original) {
    std::unordered_set<const Module*> originals;
    for (const auto& [name, module] : const_cast<Module&>(original).named_modules())  // NOLINT
        originals.insert(module);
    for (const auto& [name, module] : named_modules())
        if (originals.contains(module))
            throw UsageError(str("clone: the copy shares the module ", in_quotes(name), " of type ",
                                 type_name(typeid(*module)),
                                 " with the original, because a member points to it; add a copy "
                                 "constructor that clones the module"));
    std::unordered_map<Impl*, Tensor> copies;
    walk(*this, [&](const std::string&, Tensor& t, Role) {
        Tensor& copy = copies[t.impl().get()];
        if (!copy.defined()) {
            copy = axle::clone(t.detach());
            if (t.impl()->autograd) copy.set_requires_grad(t.requires_grad());
            autograd::copy_slice(t, copy);
            copies[copy.impl().get()] = copy;  // a tied tensor is visited once for each name
        }
        t = copy;
    });
}

void Module::set_layer_cast(std::optional<LayerCast> cast) {
    if (cast) to(cast->storage);
    layer_cast_ = cast;
}

std::vector<Tensor> Module::parameters() const {
    std::vector<Tensor> result;
    for (auto& [name, tensor] : named_parameters()) result.push_back(tensor);
    return result;
}

StateDict Module::named_parameters() const {
    StateDict result;
    std::unordered_set<const Impl*> seen;
    walk(*this, [&](const std::string& name, Tensor& t, Role role) {
        if (role == nullptr && seen.insert(t.impl().get()).second) result.emplace_back(name, t);
    });
    return result;
}

StateDict Module::named_buffers(NamedBuffersOptions options) const {
    StateDict result;
    walk(*this, [&](const std::string& name, Tensor& t, Role role) {
        if (role != nullptr && (options.include_constant || !role->constant))
            result.emplace_back(name, t);
    });
    return result;
}

void Module::check_visit() const { nn::check_visit(*this); }
void Module::remember_old_bytes(void* memory, std::size_t size) noexcept {
    nn::remember_old_bytes(memory, size);
}

StateDict Module::state_dict(StateDictOptions options) const {
    check_visit();
    StateDict result;
    std::unordered_map<const Impl*, Tensor> detached;  // one tensor for all names of a tied tensor
    walk(*this, [&](const std::string& name, Tensor& t, Role role) {
        if (role != nullptr && !role->persistent) return;
        if (options.keep_vars) {
            result.emplace_back(name, t);
            return;
        }
        Tensor& shared = detached[t.impl().get()];
        if (!shared.defined()) shared = t.detach();
        result.emplace_back(name, shared);
    });
    return result;
}

StateDict Module::saved_state() const {
    StateDict result;
    std::unordered_set<const Impl*> seen;
    for (auto& entry : state_dict())
        if (seen.insert(entry.second.impl().get()).second) result.push_back(std::move(entry));
    return result;
}

LoadReport Module::load_state_dict(const StateDict& state, LoadOptions options) {
    std::unordered_map<std::string, const Tensor*> given;
    for (const auto& [name, tensor] : state) given[name] = &tensor;

    LoadReport report;
    std::vector<std::pair<Tensor, const Tensor*>> matched;
    std::unordered_set<const Impl*> loaded;
    const StateDict own = state_dict({.keep_vars = true});
    for (const auto& [name, tensor] : own) {
        const auto found = given.find(name);
        if (found == given.end()) continue;
        const Tensor& source = *found->second;
        // For a slice, the source has the shape of the whole tensor or of the slice.
        const Shape whole = autograd::whole_shape(tensor);
        if (source.shape() != whole && source.shape() != tensor.shape())
            throw ShapeError(str("load_state_dict: ", name, " is ", whole, " in the module and ",
                                 source.shape(), " in the state"));
        if (source.dtype() != tensor.dtype() &&
            !(is_compute(source.dtype()) && is_compute(tensor.dtype())))
            throw DTypeError(str("load_state_dict: ", name, " is ", tensor.dtype(),
                                 " in the module and ", source.dtype(),
                                 " in the state, which can't be converted"));
        matched.emplace_back(tensor, &source);
        loaded.insert(tensor.impl().get());
        given.erase(found);
    }
    walk(*this, [&](const std::string&, Tensor& tensor, Role role) {
        if (role != nullptr && role->persistent && !role->required)
            loaded.insert(tensor.impl().get());
    });
    for (const auto& [name, tensor] : own)
        if (!loaded.contains(tensor.impl().get())) report.missing.push_back(name);
    for (const auto& [name, tensor] : state)
        if (given.contains(name)) report.unexpected.push_back(name);
    if (options.strict && !(report.missing.empty() && report.unexpected.empty()))
        throw ValueError(
            str("load_state_dict: the names in the state differ from the module's; missing: ",
                list_names(report.missing, report.unexpected),
                "; unexpected: ", list_names(report.unexpected, report.missing)));

    const NoGrad no_grad;
    for (auto& [tensor, source] : matched) {
        if (tensor.device().is_meta())
            tensor.set_data(axle::clone(
                axle::to(autograd::slice_for(tensor, source->detach()), tensor.dtype())));
        else
            autograd::copy_to_leaf(tensor, *source);
    }
    return report;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
    ModuleWalker walker;
    walker.found.emplace_back("", this);
    visit(walker);
    return std::move(walker.found);
}

std::vector<std::pair<std::string, Module*>> Module::named_children() {
    ModuleWalker walker(false);
    visit(walker);
    std::unordered_set<const Module*> seen;
    std::erase_if(walker.found,
                  [&](const auto& child) { return !seen.insert(child.second).second; });
    return std::move(walker.found);
}

std::vector<Module*> Module::children() {
    std::vector<Module*> result;
    for (const auto& [name, child] : named_children()) result.push_back(child);
    return result;
}

void Module::apply(const std::function<void(Module&)>& f) {
    for (Module* child : children()) child->apply(f);
    f(*this);
}

void Module::to(Device device) {
    const NoGrad no_grad;
    walk(*this, [&](const std::string&, Tensor& t, Role) {
        if (t.device() == device) return;
        const Tensor grad = t.grad();
        t.set_data(axle::to(t.detach(), device));
        if (grad.defined()) t.set_grad(axle::to(grad, device));
    });
}

void Module::to(DType dtype) {
    if (!is_floating(dtype))
        throw DTypeError(str("Module::to: the dtype must be floating: ", dtype));
    const NoGrad no_grad;
    walk(*this, [&](const std::string&, Tensor& t, Role role) {
        if (!is_floating(t.dtype()) || t.dtype() == dtype) return;
        if (role != nullptr && role->constant) return;
        const Tensor grad = t.grad();
        t.set_data(axle::to(t.detach(), dtype));
        if (grad.defined()) t.set_grad(axle::to(grad, dtype));
    });
}

void Module::train(bool on) {
    for (const auto& [name, module] : named_modules()) module->training_ = on;
}

void Module::requires_grad_(bool value) {
    for (Tensor& parameter : parameters()) parameter.set_requires_grad(value);
}

void Module::zero_grad() const {
    for (const Tensor& parameter : parameters()) parameter.zero_grad();
}

std::int64_t Module::num_parameters() const {
    std::int64_t n = 0;
    for (const Tensor& parameter : parameters()) n += parameter.numel();
    return n;
}

}  // namespace axle::nn
