// Maps the options of FSDP to the options of ShardedDataParallel, and converts the dtypes of
// models.
#include <algorithm>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "accel/config/resolve_fsdp.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "core/text/type_name.h"
#include "dist/sharding/wrap_policy.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"

namespace axle::accel {
namespace {

using Plugin = FullyShardedDataParallelPlugin;
using Units = std::vector<dist::ShardUnit>;

// Returns whether `name` is the name of the module or of something inside it.
bool is_inside(std::string_view name, std::string_view module) {
    return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
}

bool is_inside_any(std::string_view name, const std::vector<std::string>& modules) {
    return std::ranges::any_of(modules, [&](const auto& m) { return is_inside(name, m); });
}

// Returns whether the name of the module's type, without namespaces and template arguments,
// contains `part`.
bool has_type(const nn::Module& module, std::string_view part) {
    std::string name = type_name(typeid(module));
    name.resize(std::min(name.find('<'), name.size()));
    return name.find(part, name.rfind(':') + 1) != std::string::npos;
}

// The modules and parameters of a model with their names.
class Names {
  public:
    explicit Names(nn::Module& model) : modules_(model.named_modules()) {
        std::unordered_map<const Impl*, std::size_t> places;
        for (const auto& [name, tensor] : model.named_parameters())
            places.emplace(tensor.impl().get(), places.size());
        parameters_.resize(places.size());
        for (const auto& [name, tensor] : model.state_dict({.keep_vars = true}))
            if (const auto place = places.find(tensor.impl().get()); place != places.end())
                parameters_[place->second].push_back(name);
    }

    const std::vector<std::pair<std::string, nn::Module*>>& modules() const { return modules_; }
    bool is_tied(const std::string& parameter) const {
        return std::ranges::any_of(parameters_, [&](const auto& names) {
            return names.size() > 1 && std::ranges::find(names, parameter) != names.end();
        });
    }
    // Returns the position in modules() of the last module inside one of the units, or 0.
    std::size_t last_position(const Units& units) const {
        for (std::size_t i = modules_.size(); i-- > 1;)
            for (const auto& unit : units)
                if (is_inside_any(modules_[i].first, unit.modules)) return i;
        return 0;
    }
    // Removes units without parameters of their own, not counting ignored parameters and parameters
    // of inner units. An example is a layer whose weight is tied to a parameter outside the unit.
    void drop_empty(Units& units, const std::vector<std::string>& ignored) const {
        std::vector<bool> has_parameters(units.size());
        for (const auto& names : parameters_) {
            if (std::ranges::any_of(names,
                                    [&](const auto& n) { return is_inside_any(n, ignored); }))
                continue;
            std::optional<std::size_t> innermost;
            for (std::size_t u = 0; u < units.size(); ++u) {
                const bool has_all = std::ranges::all_of(
                    names, [&](const auto& n) { return is_inside_any(n, units[u].modules); });
                if (has_all && (!innermost ||
                                is_inside_any(units[u].modules.front(), units[*innermost].modules)))
                    innermost = u;
            }
            if (innermost) has_parameters[*innermost] = true;
        }
        std::size_t u = 0;
        std::erase_if(units, [&](const auto&) { return !has_parameters[u++]; });
    }

  private:
    std::vector<std::pair<std::string, nn::Module*>> modules_;
    std::vector<std::vector<std::string>> parameters_;  // the names of each parameter
};

bool is_unit(const std::string& name, const Units& units) {
    return std::ranges::any_of(units, [&](const dist::ShardUnit& unit) {
        return std::ranges::find(unit.modules, name) != unit.modules.end();
    });
}

// Adds the units of version 2 of FSDP. The first embedding is a unit. If `units` is not empty, the
// last norm after them and before the output head, and the head, form a unit. Tied embeddings and
// heads are left out. The output head is a Linear with as many outputs as the embedding has rows.
// The last norm and the head run last in forward and first in backward, so their unit stays
// gathered in between.
void add_units_of_version_2(const Names& names, const std::vector<std::string>& ignored,
                            Units& units) {
    const std::size_t last = names.last_position(units);
    const nn::Embedding* embedding = nullptr;
    std::string embedding_name, norm, head;
    for (std::size_t i = 0; i < names.modules().size(); ++i) {
        const auto& [name, module] = names.modules()[i];
        if (name.empty() || is_inside_any(name, ignored)) continue;
        if (const auto* const found = dynamic_cast<const nn::Embedding*>(module);
            found != nullptr && embedding == nullptr) {
            embedding = found;
            embedding_name = name;
        }
        if (last == 0 || i <= last) continue;
        const bool is_in_unit = std::ranges::any_of(
            units, [&](const auto& unit) { return is_inside_any(name, unit.modules); });
        if (is_in_unit) continue;
        if (has_type(*module, "Norm") && head.empty()) norm = name;
        const auto* const linear = dynamic_cast<const nn::Linear*>(module);
        if (linear != nullptr && linear->weight.defined() && embedding != nullptr &&
            !names.is_tied(name + ".weight") &&
            linear->weight.size(linear->options().transposed ? 1 : 0) == embedding->weight.size(0))
            head = name;
    }
    if (embedding != nullptr && !names.is_tied(embedding_name + ".weight") &&
        !is_unit(embedding_name, units))
        units.push_back({.modules = {embedding_name}});
    dist::ShardUnit tail{.modules = {}, .reshard_after_forward = false};
    for (const std::string& name : {norm, head})
        if (!name.empty()) tail.modules.push_back(name);
    if (!tail.modules.empty()) units.push_back(std::move(tail));
}

Units wrapped_units(const Plugin& plugin, nn::Module& model) {
    if (const auto* const policy = std::get_if<WrapPolicy>(&plugin.auto_wrap_policy))
        return dist::units_where(model, *policy);
    const auto& name = std::get<std::string>(plugin.auto_wrap_policy);
    if (name == "TRANSFORMER_BASED_WRAP")
        return dist::units_by_type(model, *plugin.transformer_cls_names_to_wrap);
    if (name == "SIZE_BASED_WRAP") return dist::units_by_size(model, *plugin.min_num_params);
    return {};
}

std::vector<std::string> ignored_modules_of(const Plugin& plugin, nn::Module& model) {
    if (const auto* const names = std::get_if<std::vector<std::string>>(&plugin.ignored_modules))
        return *names;
    const auto* const pattern = std::get_if<std::string>(&plugin.ignored_modules);
    if (pattern == nullptr) return {};
    auto names = dist::modules_matching(model, *pattern);
    if (names.empty())
        log(LogLevel::warning,
            "FullyShardedDataParallelPlugin: ignored_modules: no module matches ",
            in_quotes(*pattern));
    return names;
}

dist::BackwardPrefetch prefetch_named(const std::string& name) {
    if (name == "BACKWARD_PRE") return dist::BackwardPrefetch::backward_pre;
    if (name == "BACKWARD_POST") return dist::BackwardPrefetch::backward_post;
    return dist::BackwardPrefetch::none;
}

void convert(const Tensor& tensor, DType dtype) {
    const NoGrad no_grad;
    tensor.set_data(axle::to(tensor.detach(), dtype));
}

}  // namespace

dist::ShardingOptions sharding_options_of(Plugin plugin, nn::Module& model, Device device,
                                          std::shared_ptr<dist::ProcessGroup> replicas) {
    const std::string strategy = plugin.strategy();
    if (!plugin.shards())
        throw UsageError("sharding_options_of: the strategy must shard the model: NO_SHARD");
    plugin.set_auto_wrap_policy(model);
    const bool is_v2 = plugin.fsdp_version == 2;
    dist::ShardingOptions options;
    options.strategy = strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD"
                           ? dist::ShardingStrategy::full_shard
                           : dist::ShardingStrategy::shard_grad_op;
    options.ignored_modules = ignored_modules_of(plugin, model);
    options.units = wrapped_units(plugin, model);
    std::erase_if(options.units, [&](const dist::ShardUnit& unit) {
        return is_inside_any(unit.modules.front(), options.ignored_modules);
    });
    const Names names(model);
    if (is_v2) add_units_of_version_2(names, options.ignored_modules, options.units);
    names.drop_empty(options.units, options.ignored_modules);
    if (const auto* const p = std::get_if<MixedPrecisionPolicy>(&plugin.mixed_precision_policy))
        options.precision = {.param_dtype = p->param_dtype, .reduce_dtype = p->reduce_dtype};
    options.backward_prefetch =
        is_v2 ? dist::BackwardPrefetch::backward_pre : prefetch_named(plugin.backward_prefetch);
    options.forward_prefetch = is_v2 || plugin.forward_prefetch.value_or(false);
    options.limit_all_gathers = plugin.limit_all_gathers;
    options.sync_module_states = is_v2 || plugin.sync_module_states.value_or(false) ||
                                 plugin.cpu_ram_efficient_loading.value_or(false);
    options.device = device;
    options.offload_to_cpu = plugin.cpu_offload.value_or(false);
    options.param_init_fn = plugin.param_init_fn;
    options.replicas = std::move(replicas);
    return options;
}

void convert_buffers(const Plugin& plugin, nn::Module& model) {
    const auto* const policy = std::get_if<MixedPrecisionPolicy>(&plugin.mixed_precision_policy);
    if (policy == nullptr || !policy->buffer_dtype) return;
    std::vector<std::string> kept = ignored_modules_of(plugin, model);
    for (const auto& [name, module] : model.named_modules())
        if (has_type(*module, "BatchNorm")) kept.push_back(name);
    for (const auto& [name, buffer] : model.named_buffers({.include_constant = false}))
        if (is_floating(buffer.dtype()) && !is_inside_any(name, kept))
            convert(buffer, *policy->buffer_dtype);
}

void upcast_trained_parameters(nn::Module& model) {
    std::size_t count = 0;
    for (const Tensor& parameter : model.parameters()) {
        if (!parameter.requires_grad() || !is_half(parameter.dtype())) continue;
        convert(parameter, f32);
        ++count;
    }
    if (count > 0)
        log(LogLevel::warning, "fsdp_plugin: ", count,
            " trained parameters are converted to f32, in which optimizers update them, because "
            "mixed_precision is on; checkpoints contain them in f32");
}

}  // namespace axle::accel
