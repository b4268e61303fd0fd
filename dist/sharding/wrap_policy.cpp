#include "dist/sharding/wrap_policy.h"

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "core/files/file.h"
#include "core/text/pattern.h"
#include "core/text/text.h"
#include "core/text/type_name.h"

namespace axle::dist {
namespace {

// The classes of Hugging Face Transformers that have other names in Axle.
constexpr std::pair<std::string_view, std::string_view> kNamesOfTransformers[] = {
    {"GPT2Block", "GptBlock"},
};

std::string_view name_in_axle(std::string_view type) {
    for (const auto& [theirs, ours] : kNamesOfTransformers)
        if (type == theirs) return ours;
    return type;
}

// Returns whether `name` is the type's full name, with or without its first namespaces.
bool is_type(const std::string& full, std::string_view name) {
    if (!full.ends_with(name)) return false;
    const std::size_t before = full.size() - name.size();
    return before == 0 || full.substr(0, before).ends_with("::");
}

// Returns whether the module is a ModuleList or ModuleDict.
bool is_container(const nn::Module& module) {
    const std::string type = type_name(typeid(module));
    return type.find("::ModuleList<") != std::string::npos ||
           type.find("::ModuleDict") != std::string::npos;
}

// Returns all submodules of a model. A module with several names is returned once, with its first
// name.
std::vector<std::pair<std::string, nn::Module*>> modules_below(nn::Module& model) {
    auto all = model.named_modules();
    std::unordered_set<const nn::Module*> seen = {&model};
    std::erase_if(all, [&](const auto& entry) { return !seen.insert(entry.second).second; });
    return all;
}

// Adds the units inside a module. Returns the number of their parameters.
std::int64_t add_units(const std::string& prefix, nn::Module& module, std::int64_t min_num_params,
                       std::vector<ShardUnit>& units) {
    std::int64_t in_units = 0;
    for (const auto& [child_name, child] : module.named_children()) {
        const std::string name = prefix.empty() ? child_name : prefix + "." + child_name;
        if (child->num_parameters() < min_num_params) continue;
        const std::int64_t inside = add_units(name, *child, min_num_params, units);
        const std::int64_t rest = child->num_parameters() - inside;
        in_units += inside;
        if (rest < min_num_params || is_container(*child)) continue;
        units.push_back({.modules = {name}});
        in_units += rest;
    }
    return in_units;
}

}  // namespace

std::vector<ShardUnit> units_by_type(nn::Module& model, const std::vector<std::string>& types,
                                     const char* option) {
    const auto modules = modules_below(model);
    std::vector<ShardUnit> units;
    std::vector<bool> is_found(types.size());
    std::vector<std::string> known;
    for (const auto& [name, module] : modules) {
        const std::string full = type_name(typeid(*module));
        known.push_back(
            full.substr(full.rfind(':') == std::string::npos ? 0 : full.rfind(':') + 1));
        for (std::size_t i = 0; i < types.size(); ++i) {
            if (!is_type(full, name_in_axle(types[i]))) continue;
            is_found[i] = true;
            units.push_back({.modules = {name}});
            break;
        }
    }
    for (std::size_t i = 0; i < types.size(); ++i)
        if (!is_found[i]) {
            const std::string near = nearest(types[i], known);
            throw ValueError(str(option, ": the model has no module of type ", in_quotes(types[i]),
                                 near.empty() ? "" : str("; the nearest type is ", near)));
        }
    return units;
}

std::vector<ShardUnit> units_by_size(nn::Module& model, std::int64_t min_num_params) {
    if (min_num_params < 1)
        throw ValueError(str("units_by_size: min_num_params must be at least 1: ", min_num_params));
    std::vector<ShardUnit> units;
    add_units("", model, min_num_params, units);
    return units;
}

std::vector<ShardUnit> units_where(nn::Module& model,
                                   const std::function<bool(const nn::Module&)>& is_unit) {
    std::vector<ShardUnit> units;
    for (const auto& [name, module] : modules_below(model))
        if (is_unit(*module)) units.push_back({.modules = {name}});
    return units;
}

std::vector<std::string> modules_matching(nn::Module& model, const std::string& pattern) {
    std::vector<std::string> names;
    try {
        const Pattern expression(pattern);
        for (const auto& [name, module] : model.named_modules())
            if (!name.empty() && expression.matches(name)) names.push_back(name);
    } catch (const ValueError& error) {
        throw ValueError(str("ignored_modules: the regular expression ", in_quotes(pattern),
                             " is invalid: ", error.what()));
    }
    return names;
}

}  // namespace axle::dist
