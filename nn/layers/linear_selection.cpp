#include "nn/layers/linear_selection.h"

#include <algorithm>
#include <optional>
#include <typeinfo>

#include "core/autograd/local_part.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "core/text/pattern.h"
#include "core/text/type_name.h"

namespace axle::nn {
namespace {

// Returns the names of all Linear layers, for an error message.
std::string layer_names(Module& model) {
    constexpr std::size_t kShown = 8;
    std::string names;
    std::size_t count = 0;
    for (const auto& [name, module] : model.named_modules()) {
        if (dynamic_cast<Linear*>(module) == nullptr) continue;
        if (++count <= kShown) names += (names.empty() ? "" : ", ") + name;
    }
    return str(count, " Linear layers: ", names, count > kShown ? ", ..." : "");
}

}  // namespace

bool is_selected(const std::string& name, const std::vector<std::string>& elements) {
    return std::ranges::any_of(
        elements, [&](const std::string& one) { return name == one || name.ends_with("." + one); });
}

bool is_below(const std::string& name, const std::string& parent) {
    return name.starts_with(parent + ".");
}

NamedLinears select_linears(Module& model, const LinearSelection& selection, const char* who,
                            const char* verb) {
    const bool is_all = selection.targets == std::vector<std::string>{"all-linear"};
    const std::optional<Pattern> pattern =
        selection.pattern.empty() ? std::nullopt : std::optional(Pattern(selection.pattern));
    const auto is_target = [&](const std::string& name, const Module& module) {
        if (pattern) return pattern->matches(name);
        if (is_all) return dynamic_cast<const Linear*>(&module) != nullptr;
        return is_selected(name, selection.targets);
    };
    NamedLinears layers;
    for (const auto& [name, module] : model.named_modules()) {
        if (name.empty() || !is_target(name, *module) || selection.is_excluded(name)) continue;
        if (dynamic_cast<const LinearPolicy*>(module) != nullptr) continue;
        auto* const layer = dynamic_cast<Linear*>(module);
        if (layer == nullptr)
            throw ValueError(str(who, ": only Linear layers can be ", verb, ": ", name, " is a ",
                                 type_name(typeid(*module))));
        if (std::ranges::none_of(layers, [&](const auto& one) { return one.second == layer; }))
            layers.emplace_back(name, layer);
    }
    if (layers.empty())
        throw ValueError(str(who, ": target_modules and target_pattern select no layer of the ",
                             "model, which has ", layer_names(model)));
    return layers;
}

void warn_of_unused(const char* who, const char* list, const std::vector<std::string>& unused,
                    const char* what) {
    std::string names;
    for (const std::string& element : unused)
        names += (names.empty() ? "" : ", ") + in_quotes(element);
    if (!names.empty())
        log(LogLevel::warning, who, ": ", list, ": the model has no ", what, " ", names);
}

void warn_of_unused(Module& model, const char* who, const char* list,
                    const std::vector<std::string>& elements) {
    if (elements == std::vector<std::string>{"all-linear"}) return;
    const auto modules = model.named_modules();
    std::vector<std::string> unused;
    for (const std::string& element : elements)
        if (std::ranges::none_of(
                modules, [&](const auto& one) { return is_selected(one.first, {element}); }))
            unused.push_back(element);
    warn_of_unused(who, list, unused, "module");
}

void check_whole(const Module& model, const char* who) {
    for (const auto& [name, parameter] : model.named_parameters())
        if (autograd::is_sharded(parameter))
            throw UsageError(str(who, ": the parameter ", name,
                                 " is sharded: call dist::unshard() on all processes first"));
}

void check_unprepared(const Module& model, const char* who, const char* what) {
    if (model.hooks() != nullptr)
        throw UsageError(str(who, ": the model is already prepared: ", what, " before prepare()"));
    check_whole(model, who);
}

}  // namespace axle::nn
