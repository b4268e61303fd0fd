#include "nn/layers/container.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/files/file.h"
#include "core/text/type_name.h"

namespace axle::nn {
namespace {

std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + printable(name);
    return text.empty() ? "none" : text;
}

[[noreturn]] void throw_unknown_name(const char* container, std::string_view name,
                                     const std::vector<std::string>& names,
                                     const char* kind = "module") {
    throw IndexError(
        str(container, ": no ", kind, " ", printable(name), "; existing names: ", list_of(names)));
}

void check_parameter(const char* container, const Tensor& parameter) {
    if (!parameter.defined()) throw UsageError(str(container, ": the parameter is undefined"));
    if (!parameter.is_leaf())
        throw UsageError(str(container, ": the parameter must be a leaf: the tensor of shape ",
                             parameter.shape(), " is the result of an op; detach() it"));
}

}  // namespace

namespace container {

std::size_t checked_index(const char* container, std::int64_t i, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    if (i < -count || i >= count)
        throw IndexError(str(container, ": index ", i, " is out of range for ", size, " elements"));
    return static_cast<std::size_t>(i < 0 ? i + count : i);
}

void check_name(const char* container, std::string_view name,
                const std::vector<std::string>& existing) {
    if (name.empty()) throw ValueError(str(container, ": the name must not be empty"));
    const std::string shown = printable(name);
    if (name.find('.') != std::string_view::npos)
        throw ValueError(str(container, ": the name must not contain a dot: ", shown));
    if (std::find(existing.begin(), existing.end(), name) != existing.end())
        throw ValueError(str(container, ": the name already exists: ", shown));
}

void throw_wrong_type(const char* container, const std::string& child,
                      const std::type_info& expected, const Module& actual) {
    throw ValueError(str(container, ": get: module ", printable(child), " is of type ",
                         type_name(typeid(actual)), ", not ", type_name(expected)));
}

}  // namespace container

void ModuleList<Module>::visit(Visitor& v) {
    for (std::size_t i = 0; i < modules_.size(); ++i) v(std::to_string(i), *modules_[i]);
}

Module& ModuleDict::add(std::string name, container::AnyModule module) {
    modules_.push_back(std::move(module));
    names_.push_back(std::move(name));
    return *modules_.back();
}

void ModuleDict::visit(Visitor& v) {
    for (std::size_t i = 0; i < modules_.size(); ++i) v(names_[i], *modules_[i]);
}

std::size_t ModuleDict::index(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) throw_unknown_name("ModuleDict", name, names_);
    return static_cast<std::size_t>(found - names_.begin());
}

bool ModuleDict::contains(std::string_view name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void ModuleDict::erase(std::string_view name) {
    const auto i = static_cast<std::ptrdiff_t>(index(name));
    modules_.erase(modules_.begin() + i);
    names_.erase(names_.begin() + i);
}

void ParameterList::push_back(const Tensor& parameter) {
    check_parameter("ParameterList", parameter);
    parameters_.push_back(parameter);
}

void ParameterList::visit(Visitor& v) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) v(std::to_string(i), parameters_[i]);
}

void ParameterDict::insert(std::string name, const Tensor& parameter) {
    check_parameter("ParameterDict", parameter);
    container::check_name("ParameterDict", name, names_);
    parameters_.push_back(parameter);
    names_.push_back(std::move(name));
}

void ParameterDict::erase(std::string_view name) {
    const auto i = static_cast<std::ptrdiff_t>(index(name));
    parameters_.erase(parameters_.begin() + i);
    names_.erase(names_.begin() + i);
}

bool ParameterDict::contains(std::string_view name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
}

std::size_t ParameterDict::index(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) throw_unknown_name("ParameterDict", name, names_, "parameter");
    return static_cast<std::size_t>(found - names_.begin());
}

void ParameterDict::visit(Visitor& v) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) v(names_[i], parameters_[i]);
}

struct Sequential::Function : Stage {
    explicit Function(std::function<Tensor(const Tensor&)> f_) : f(std::move(f_)) {}
    Tensor call(const Tensor& x) override { return f(x); }
    OwningPtr<Stage> clone() const override { return make_owning<Function>(f); }
    std::function<Tensor(const Tensor&)> f;
};

Sequential::Sequential(const Sequential& other) : Model(other), names_(other.names_) {
    for (const auto& stage : other.stages_) stages_.push_back(stage->clone());
}

std::string Sequential::next_name() const { return std::to_string(stages_.size()); }

void Sequential::add(std::string name, OwningPtr<Stage> stage) {
    stages_.push_back(std::move(stage));
    names_.push_back(std::move(name));
}

void Sequential::add(std::string name, std::function<Tensor(const Tensor&)> f) {
    add(std::move(name), OwningPtr<Stage>(new Function(std::move(f))));
}

Tensor Sequential::forward(Tensor x) {
    for (const auto& stage : stages_) x = stage->call(x);
    return x;
}

void Sequential::visit(Visitor& v) {
    for (std::size_t i = 0; i < stages_.size(); ++i)
        if (Module* module = stages_[i]->module()) v(names_[i], *module);
}

Module& Sequential::operator[](std::string_view name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) throw_unknown_name("Sequential", name, names_);
    return module_at(static_cast<std::size_t>(found - names_.begin()));
}

Module& Sequential::module_at(std::size_t i) {
    if (Module* const module = stages_[i]->module()) return *module;
    throw IndexError(
        str("Sequential: stage ", printable(names_[i]), " is a function, not a module"));
}

}  // namespace axle::nn
