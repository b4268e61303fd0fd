// Containers of modules (ModuleList, ModuleDict and Sequential) and of parameters (ParameterList
// and ParameterDict). All are modules themselves, so their contents are trained, saved, moved and
// cloned with the container.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/memory/owning_ptr.h"
#include "nn/module.h"

namespace axle::nn {

namespace container {

// Owns a module of any type. Only Model::clone() may copy it (see Module).
class AnyModule {
  public:
    template <class T>
        requires(std::is_base_of_v<Module, T> && !std::is_lvalue_reference_v<T>)
    explicit AnyModule(T&& module)  // NOLINT(bugprone-forwarding-reference-overload)
        : holder_(make_owning<Holder<T>>(std::forward<T>(module))) {}
    AnyModule(const AnyModule& other) : holder_(other.holder_->clone()) {}
    AnyModule(AnyModule&&) noexcept = default;
    AnyModule& operator=(const AnyModule&) = delete;
    AnyModule& operator=(AnyModule&&) noexcept = default;
    ~AnyModule() = default;

    Module& operator*() { return holder_->module(); }

  private:
    struct Base {
        virtual ~Base() = default;
        virtual Module& module() = 0;
        virtual OwningPtr<Base> clone() const = 0;
    };
    template <class T>
    struct Holder : Base {
        explicit Holder(T&& from) : owned(std::move(from)) {}
        explicit Holder(const T& from) : owned(from) {}
        Module& module() override { return owned; }
        OwningPtr<Base> clone() const override { return make_owning<Holder>(owned); }
        T owned;
    };
    OwningPtr<Base> holder_;
};

// Returns i, or size + i if i is negative. Throws IndexError unless -size <= i < size. `container`
// is the class name in the message, in this function and in check_name() and as().
std::size_t checked_index(const char* container, std::int64_t i, std::size_t size);
// Throws ValueError if the name of a child is empty, contains a dot or is one of the existing
// names.
void check_name(const char* container, std::string_view name,
                const std::vector<std::string>& existing);
[[noreturn]] void throw_wrong_type(const char* container, const std::string& child,
                                   const std::type_info& expected, const Module& actual);

// Returns the module as a T. Throws ValueError with both types if the module is not a T. `child` is
// the index or name for the message.
template <class T>
T& as(const char* container, const std::string& child, Module& module) {
    if (auto* const typed = dynamic_cast<T*>(&module)) return *typed;
    throw_wrong_type(container, child, typeid(T), module);
}

// Whether P is a std::pair whose first element can be converted to a string: a stage with its name.
template <class P>
inline constexpr bool is_named = false;
template <class Name, class T>
    requires std::convertible_to<Name, std::string>
inline constexpr bool is_named<std::pair<Name, T>> = true;

}  // namespace container

// A list of modules of one type, named "0", "1", ... push_back() invalidates references to
// modules. ModuleList<> contains modules of any types.
template <class T = Module>
class ModuleList : public Model<ModuleList<T>> {
  public:
    ModuleList() = default;

    void push_back(T module) { modules_.push_back(std::move(module)); }
    std::size_t size() const { return modules_.size(); }
    // Returns a module. A negative index counts from the end. Throws IndexError if the index is out
    // of range.
    T& operator[](std::int64_t i) {
        return modules_[container::checked_index("ModuleList", i, modules_.size())];
    }
    auto begin() { return modules_.begin(); }
    auto end() { return modules_.end(); }
    void visit(Visitor& v) override {
        for (std::size_t i = 0; i < modules_.size(); ++i) v(std::to_string(i), modules_[i]);
    }

  private:
    std::vector<T> modules_;
};

// A list of modules of any types:
//     nn::ModuleList<> stages;
//     stages.push_back(nn::Linear(4, 8));
//     stages.push_back(nn::LayerNorm(8));
//     Tensor y = stages.get<nn::Linear>(0)(x);
template <>
class ModuleList<Module> : public Model<ModuleList<Module>> {
  public:
    // Iterates over the modules as Module&.
    class Iterator {
      public:
        explicit Iterator(container::AnyModule* at) : at_(at) {}
        Module& operator*() const { return **at_; }
        Iterator& operator++() {
            ++at_;
            return *this;
        }
        bool operator==(const Iterator&) const = default;

      private:
        container::AnyModule* at_;
    };

    ModuleList() = default;

    // Appends a module, which must be an rvalue, and returns a reference to it. The reference stays
    // valid until the list is destroyed, even if modules are appended or the list is moved.
    template <class T>
        requires(std::is_base_of_v<Module, T> && !std::is_lvalue_reference_v<T>)
    T& push_back(T&& module) {
        return static_cast<T&>(*modules_.emplace_back(std::forward<T>(module)));
    }
    std::size_t size() const { return modules_.size(); }
    // Returns a module. A negative index counts from the end. Throws IndexError if the index is out
    // of range.
    Module& operator[](std::int64_t i) {
        return *modules_[container::checked_index("ModuleList", i, size())];
    }
    // Returns (*this)[i] as a T. Throws IndexError if the index is out of range, and ValueError if
    // the module is not a T.
    template <class T>
    T& get(std::int64_t i) {
        return container::as<T>("ModuleList", std::to_string(i), (*this)[i]);
    }
    Iterator begin() { return Iterator(modules_.data()); }
    Iterator end() { return Iterator(modules_.data() + modules_.size()); }
    void visit(Visitor& v) override;

  private:
    std::vector<container::AnyModule> modules_;
};

// A map from names to modules of any types, in the order of insertion:
//     nn::ModuleDict heads{std::pair{"class", nn::Linear(8, 10)}, std::pair{"box", Boxes(8)}};
//     Tensor y = heads.get<nn::Linear>("class")(x);
class ModuleDict : public Model<ModuleDict> {
  public:
    ModuleDict() = default;
    // Adds the children in order. Throws the errors of insert().
    template <class... Names, class... Modules>
        requires(sizeof...(Names) > 0)
    explicit ModuleDict(std::pair<Names, Modules>... children) {
        (insert(children.first, std::move(children.second)), ...);
    }

    // Adds a module, which must be an rvalue, and returns a reference to it. The reference stays
    // valid until the module is erased or the ModuleDict is destroyed. Throws ValueError if the
    // name already exists, is empty or contains a dot.
    template <class T>
        requires(std::is_base_of_v<Module, T> && !std::is_lvalue_reference_v<T>)
    T& insert(std::string name, T&& module) {
        container::check_name("ModuleDict", name, names_);
        return static_cast<T&>(add(std::move(name), container::AnyModule(std::forward<T>(module))));
    }
    // Removes a module. Throws IndexError if the name does not exist.
    void erase(std::string_view name);
    std::size_t size() const { return modules_.size(); }
    bool contains(std::string_view name) const;
    // Returns the names in the order of insertion. named_children() returns names and modules.
    const std::vector<std::string>& keys() const { return names_; }
    // Returns a module. Throws IndexError with the existing names if the name does not exist.
    Module& operator[](std::string_view name) { return *modules_[index(name)]; }
    // Returns (*this)[name] as a T. Throws IndexError if the name does not exist, and ValueError if
    // the module is not a T.
    template <class T>
    T& get(std::string_view name) {
        return container::as<T>("ModuleDict", std::string(name), (*this)[name]);
    }
    void visit(Visitor& v) override;

  private:
    Module& add(std::string name, container::AnyModule module);
    std::size_t index(std::string_view name) const;

    std::vector<std::string> names_;
    std::vector<container::AnyModule> modules_;
};

// A list of parameters, named "0", "1", ...
//     nn::ParameterList scales;
//     scales.push_back(ones({4}, {.requires_grad = true}));
// A tensor is trained only if it requires a gradient. push_back() invalidates references.
class ParameterList : public Model<ParameterList> {
  public:
    ParameterList() = default;
    // Adds the parameters in order. Throws the errors of push_back().
    explicit ParameterList(const std::vector<Tensor>& parameters) {
        for (const Tensor& parameter : parameters) push_back(parameter);
    }

    // Appends a parameter. Throws UsageError unless it is defined and a leaf.
    void push_back(const Tensor& parameter);
    std::size_t size() const { return parameters_.size(); }
    // Returns a parameter. A negative index counts from the end. Throws IndexError if the index is
    // out of range.
    Tensor& operator[](std::int64_t i) {
        return parameters_[container::checked_index("ParameterList", i, size())];
    }
    auto begin() { return parameters_.begin(); }
    auto end() { return parameters_.end(); }
    void visit(Visitor& v) override;

  private:
    std::vector<Tensor> parameters_;
};

// A map from names to parameters, in the order of insertion.
class ParameterDict : public Model<ParameterDict> {
  public:
    ParameterDict() = default;

    // Adds a parameter. Throws UsageError unless it is defined and a leaf, and ValueError if the
    // name already exists, is empty or contains a dot.
    void insert(std::string name, const Tensor& parameter);
    // Removes a parameter. Throws IndexError if the name does not exist.
    void erase(std::string_view name);
    std::size_t size() const { return parameters_.size(); }
    bool contains(std::string_view name) const;
    // Returns the names in the order of insertion.
    const std::vector<std::string>& keys() const { return names_; }
    // Returns a parameter. Throws IndexError with the existing names if the name does not exist.
    Tensor& operator[](std::string_view name) { return parameters_[index(name)]; }
    void visit(Visitor& v) override;

  private:
    std::size_t index(std::string_view name) const;

    std::vector<std::string> names_;
    std::vector<Tensor> parameters_;
};

// Applies stages one after another. A stage is a module, or a function from Tensor to Tensor. The
// name of a stage is its index, as in PyTorch; functions have an index too. A pair of a string and
// a stage adds the stage under the name in the string.
//
//     // The braces make C++ construct the layers in order, so initial weights are reproducible.
//     nn::Sequential net{nn::Linear(784, 512), relu, nn::Linear(512, 10)};
//     net.get<nn::Linear>(2).bias.fill_(0);
//     nn::Sequential named{std::pair{"hidden", nn::Linear(784, 512)}, relu,
//                          std::pair{"out", nn::Linear(512, 10)}};  // hidden.weight, ...
class Sequential : public Model<Sequential> {
  public:
    Sequential() = default;
    // Adds the stages in order. Throws the errors of push_back().
    template <class... Stages>
        requires(sizeof...(Stages) > 1 ||
                 (sizeof...(Stages) == 1 &&
                  (!std::is_same_v<std::remove_cvref_t<Stages>, Sequential> && ...)))
    explicit Sequential(Stages&&... stages) {
        (push_back(std::forward<Stages>(stages)), ...);
    }
    Sequential(Sequential&&) = default;
    Sequential& operator=(Sequential&&) = default;
    // Copies the stages; only clone() may call this constructor (see Module).
    Sequential(const Sequential& other);

    // Appends a stage, whose name is its index, or the first element if `stage` is a pair. Throws
    // ValueError if the name already exists, is empty or contains a dot.
    template <class S>
    void push_back(S&& stage) {
        if constexpr (container::is_named<std::remove_cvref_t<S>>)
            push_back(std::string(stage.first), std::forward<S>(stage).second);
        else
            push_back(next_name(), std::forward<S>(stage));
    }
    // Appends a stage with a name. A module must be an rvalue. Throws ValueError if the name
    // already exists, is empty or contains a dot.
    template <class S>
    void push_back(std::string name, S&& stage) {
        container::check_name("Sequential", name, names_);
        using T = std::remove_cvref_t<S>;
        if constexpr (std::is_base_of_v<Module, T>) {
            static_assert(!std::is_lvalue_reference_v<S>,
                          "Sequential: pass the module as an rvalue: std::move(module)");
            add(std::move(name), make_owning<Layer<T>>(std::forward<S>(stage)));
        } else {
            add(std::move(name), std::function<Tensor(const Tensor&)>(std::forward<S>(stage)));
        }
    }
    std::size_t size() const { return stages_.size(); }
    // Return a module by the index of its stage (a negative index counts from the end) or by its
    // name. Throw IndexError if the stage does not exist or is a function.
    Module& operator[](std::int64_t i) {
        return module_at(container::checked_index("Sequential", i, size()));
    }
    Module& operator[](std::string_view name);
    // Return (*this)[i] or (*this)[name] as a T. Throw IndexError if the stage does not exist or is
    // a function, and ValueError if the module is not a T.
    template <class T>
    T& get(std::int64_t i) {
        return container::as<T>("Sequential", std::to_string(i), (*this)[i]);
    }
    template <class T>
    T& get(std::string_view name) {
        return container::as<T>("Sequential", std::string(name), (*this)[name]);
    }

    Tensor forward(Tensor x);
    void visit(Visitor& v) override;

  private:
    struct Stage {
        virtual ~Stage() = default;
        virtual Tensor call(const Tensor& x) = 0;
        virtual Module* module() { return nullptr; }
        virtual OwningPtr<Stage> clone() const = 0;
    };
    template <class T>
    struct Layer : Stage {
        explicit Layer(T&& layer_) : layer(std::move(layer_)) {}
        explicit Layer(const T& layer_) : layer(layer_) {}
        Tensor call(const Tensor& x) override { return layer(x); }
        Module* module() override { return &layer; }
        OwningPtr<Stage> clone() const override { return make_owning<Layer>(layer); }
        T layer;
    };
    struct Function;

    std::string next_name() const;  // the index of the next stage
    void add(std::string name, OwningPtr<Stage> stage);
    void add(std::string name, std::function<Tensor(const Tensor&)> f);
    Module& module_at(std::size_t i);

    std::vector<std::string> names_;  // one name for each stage
    std::vector<OwningPtr<Stage>> stages_;
};

}  // namespace axle::nn
