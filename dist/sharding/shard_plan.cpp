#include "dist/sharding/shard_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/files/file.h"
#include "core/text/text.h"

namespace axle::dist {
namespace {

// Returns whether `name` is the name of the module, or of a module or parameter inside it.
bool is_inside(const std::string& name, const std::string& module) {
    return module.empty() || (name.starts_with(module) &&
                              (name.size() == module.size() || name[module.size()] == '.'));
}

bool contains(const ShardUnit& unit, const std::string& name) {
    return std::ranges::any_of(unit.modules,
                               [&](const std::string& module) { return is_inside(name, module); });
}

// Returns the index of the last unit that contains all names of a parameter, or 0 for the unit of
// the whole model. Units are in the order of their first modules in named_modules(), so among units
// of one module, this is the innermost one.
std::size_t unit_of(const std::vector<std::string>& names, const std::vector<PlannedUnit>& units) {
    for (std::size_t i = units.size(); i-- > 1;)
        if (std::ranges::all_of(
                names, [&](const std::string& name) { return contains(units[i].unit, name); }))
            return i;
    return 0;
}

class Planner {
  public:
    explicit Planner(nn::Module& model) {
        for (const auto& [name, module] : model.named_modules()) {
            positions_.emplace(name, modules_.size());
            modules_.push_back(module);
            names_.push_back(name);
        }
    }

    nn::Module* find(const char* what, const std::string& name) const {
        const auto found = positions_.find(name);
        if (name.empty() || found == positions_.end())
            throw ValueError(
                str("ShardedDataParallel: ", what, ": the model has no module ", in_quotes(name),
                    name.empty() ? "; the model itself can't be listed" : nearest_to(name)));
        return modules_[found->second];
    }

    // Returns the position of the first module of a unit in named_modules().
    std::size_t position(const ShardUnit& unit) const {
        std::size_t first = modules_.size();
        for (const std::string& name : unit.modules) first = std::min(first, positions_.at(name));
        return first;
    }

  private:
    std::string nearest_to(const std::string& name) const {
        const std::string near = nearest(name, names_);
        return near.empty() ? std::string() : str("; the nearest name is ", in_quotes(near));
    }

    std::unordered_map<std::string, std::size_t> positions_;
    std::vector<nn::Module*> modules_;
    std::vector<std::string> names_;
};

// Returns each parameter with its names, in the order of the first names.
std::vector<std::pair<Tensor, std::vector<std::string>>> names_of_parameters(nn::Module& model) {
    std::vector<std::pair<Tensor, std::vector<std::string>>> result;
    std::unordered_map<const Impl*, std::size_t> places;
    for (const auto& [name, tensor] : model.named_parameters()) {
        places.emplace(tensor.impl().get(), result.size());
        result.push_back({tensor, {}});
    }
    for (const auto& [name, tensor] : model.state_dict({.keep_vars = true}))
        if (const auto found = places.find(tensor.impl().get()); found != places.end())
            result[found->second].second.push_back(name);
    return result;
}

}  // namespace

ShardPlan plan_shards(nn::Module& model, const ShardingOptions& options) {
    const Planner planner(model);
    ShardPlan plan;
    plan.units.push_back({.unit = {.modules = {""}}, .modules = {&model}, .parameters = {}});
    for (std::size_t i = 0; i < options.units.size(); ++i) {
        const ShardUnit& unit = options.units[i];
        if (unit.modules.empty())
            throw ValueError(str("ShardedDataParallel: a unit must have at least one module: unit ",
                                 i, " has none"));
        PlannedUnit planned{.unit = unit, .modules = {}, .parameters = {}};
        for (const std::string& name : unit.modules)
            planned.modules.push_back(planner.find("units", name));
        plan.units.push_back(std::move(planned));
    }
    std::stable_sort(plan.units.begin() + 1, plan.units.end(),
                     [&](const PlannedUnit& a, const PlannedUnit& b) {
                         return planner.position(a.unit) < planner.position(b.unit);
                     });
    std::vector<const nn::Module*> taken;
    for (const PlannedUnit& unit : plan.units)
        for (std::size_t i = 0; i < unit.modules.size(); ++i) {
            if (std::ranges::find(taken, unit.modules[i]) != taken.end())
                throw ValueError(str("ShardedDataParallel: the module ",
                                     in_quotes(unit.unit.modules[i]),
                                     " is listed twice in the units"));
            taken.push_back(unit.modules[i]);
        }
    for (const std::string& name : options.ignored_modules) planner.find("ignored_modules", name);

    using SetKind = std::tuple<DType, bool>;
    std::vector<std::map<SetKind, nn::StateDict>> sets(plan.units.size());
    for (const auto& [tensor, names] : names_of_parameters(model)) {
        const bool is_ignored = std::ranges::any_of(names, [&](const std::string& name) {
            return contains({.modules = options.ignored_modules}, name);
        });
        if (is_ignored)
            plan.ignored.emplace_back(names.front(), tensor);
        else
            sets[unit_of(names, plan.units)][{tensor.dtype(), tensor.requires_grad()}].emplace_back(
                names.front(), tensor);
    }
    for (std::size_t i = 0; i < sets.size(); ++i) {
        if (sets[i].empty() && i > 0)
            throw ValueError(
                str("ShardedDataParallel: each unit must have parameters of its own: the "
                    "unit of module ",
                    in_quotes(plan.units[i].unit.modules.front()),
                    " has none; remove it from the units"));
        for (auto& [kind, parameters] : sets[i])
            plan.units[i].parameters.push_back(std::move(parameters));
    }
    return plan;
}

}  // namespace axle::dist
