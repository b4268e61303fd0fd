#include "nn/layers/container.h"

#include <algorithm>
#include <iterator>

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
                                     const std::vector<std::string>& names) {
    throw IndexError(
        str(container, ": no module ", printable(name), "; existing names: ", list_of(names)));
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
    if (name.empty()) throw ValueError(str(container, ": the name of a module is empty"));
    const std::string shown = printable(name);
    if (name.find('.') != std::string_view::npos)
        throw ValueError(str(container, ": the name of a module must not contain a dot: ", shown));
    if (std::find(existing.begin(), existing.end(), name) != existing.end())
        throw ValueError(str(container, ": there is already a module with the name ", shown));
}

void throw_wrong_type(const char* container, const std::string& child,
                      const std::type_info& expected, const Module& actual) {
    throw ValueError(str(container, ": get: module ", printable(child), " is of type ",
                         type_name(typeid(actual)), ", not ", type_name(expected)));
}

}  // namespace container

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
