#include "accel/prepare/model_sharding.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel/config/resolve_fsdp.h"
#include "accel/prepare/deepspeed_sharding.h"
#include "accel/prepare/model_division.h"

namespace axle::accel {
namespace {

using Group = std::shared_ptr<dist::ProcessGroup>;

// The groups of processes of a sharded model. Parameters are sharded over `shards`. The processes
// of `replicas` have equal shards. The processes of `secondary` together keep a copy of the
// parameters. `replicas` and `secondary` can be nullptr.
struct Groups {
    Group shards, replicas = nullptr, secondary = nullptr;
};

bool is_hybrid(const FullyShardedDataParallelPlugin& plugin) {
    return plugin.strategy().starts_with("HYBRID");
}

// Returns the groups for sharding and replication. Parameters are sharded over the mesh's
// dimensions dp_shard, cp and sp, if the mesh has any of them. Otherwise, if the mesh has tp, they
// are sharded over data_group_of(). Without these dimensions the strategies HYBRID_ shard within
// each machine, and the other strategies shard over all processes. All processes must call this
// function. Throws ValueError if a HYBRID_ strategy shards within machines that have different
// numbers of processes.
Groups groups_of(const FullyShardedDataParallelPlugin& plugin, const dist::DeviceMesh* mesh,
                 const PartialState& processes) {
    const auto& all = processes.process_group();
    std::vector<std::string> sharded;
    for (const char* name : {"dp_shard", "cp", "sp"})
        if (mesh != nullptr && mesh->has(name)) sharded.emplace_back(name);
    if (!sharded.empty()) {
        // The other dimensions whose processes read different data, such as "dp_replicate".
        std::vector<std::string> replicated;
        for (const auto& [name, size] : mesh->dimensions())
            if (size > 1 && name != "tp" && name != "pp" &&
                std::ranges::find(sharded, name) == sharded.end())
                replicated.push_back(name);
        return {sharded.size() == 1 ? mesh->get_group(sharded.front()) : mesh->flatten(sharded),
                replicated.empty() ? Group() : mesh->flatten(replicated)};
    }
    if (mesh != nullptr && mesh->has("tp")) return {data_group_of(mesh)};
    if (!is_hybrid(plugin)) return {all};
    const int local = processes.local_process_index();
    Groups groups{all->split(processes.process_index() - local), all->split(local)};
    if (groups.replicas->size() * groups.shards->size() != all->size())
        throw ValueError(str("FullyShardedDataParallelPlugin: ", plugin.strategy(),
                             " needs the same number of processes on each machine: this machine ",
                             "has ", groups.shards->size(), " of ", all->size(), " processes"));
    if (groups.replicas->size() == 1) groups.replicas = nullptr;
    return groups;
}

// Turns on activation checkpointing for the units: calls save only their inputs, and backward
// recomputes the rest.
void checkpoint_units(nn::Module& model, const dist::ShardingOptions& options) {
    const auto modules = model.named_modules();
    for (const dist::ShardUnit& unit : options.units)
        for (const auto& [name, module] : modules)
            if (std::ranges::find(unit.modules, name) != unit.modules.end())
                module->set_checkpointing();
}

void set_fsdp(PreparationOptions& preparation, const FullyShardedDataParallelPlugin& plugin,
              const PartialState& processes, bool is_mixed) {
    // If output_dtype is equal to param_dtype, convert_outputs_to_fp32 determines the dtype of the
    // outputs.
    if (const auto* const p = std::get_if<MixedPrecisionPolicy>(&plugin.mixed_precision_policy);
        p != nullptr && p->output_dtype != p->param_dtype)
        preparation.output_dtype = p->output_dtype;
    const auto groups = std::make_shared<std::optional<Groups>>();
    preparation.sharding = [plugin, groups, is_mixed, &processes,
                            mesh = preparation.loading.device_mesh](
                               nn::Module& model) -> std::optional<ModelSharding> {
        if (!*groups) *groups = groups_of(plugin, mesh.get(), processes);
        if (is_mixed) upcast_trained_parameters(model);
        convert_buffers(plugin, model);
        dist::ShardingOptions options =
            sharding_options_of(plugin, model, processes.device(), (*groups)->replicas);
        if (plugin.activation_checkpointing.value_or(false)) checkpoint_units(model, options);
        return ModelSharding{(*groups)->shards, std::move(options)};
    };
}

// Returns groups of consecutive processes with the given sizes, which divide the size of `all`. If
// sizes.shards is 0, parameters are sharded over `all`; if sizes.secondary is 0, there is no
// secondary copy. All processes must call this function.
Groups groups_of(const DeepSpeedGroups& sizes, const Group& all) {
    Groups groups{all};
    const int rank = all->rank();
    if (sizes.shards > 0 && sizes.shards < all->size()) {
        groups.shards = all->split(rank / sizes.shards);
        groups.replicas = all->split(rank % sizes.shards);
    }
    if (sizes.secondary > 0) groups.secondary = all->split(rank / sizes.secondary);
    return groups;
}

// Sets functions of `preparation` that refer to the plugin and to `processes`, which must outlive
// the functions. The plugin is not copied, because prepare() sets its "auto" values later, and
// select_deepspeed_plugin() can replace it.
void set_deepspeed(PreparationOptions& preparation, const DeepSpeedPlugin& plugin,
                   const PartialState& processes) {
    preparation.optimizers = [&plugin] {
        return PreparationOptions::OptimizerOptions{
            .max_grad_norm = gradient_clipping_of(plugin),
            .state_folder = plugin.offload_optimizer_device == "nvme"
                                ? plugin.offload_optimizer_nvme_path
                                : ""};
    };
    // The groups that were created, by their sizes {shards, secondary}.
    const auto known = std::make_shared<std::map<std::pair<int, int>, Groups>>();
    preparation.sharding = [&plugin, &processes,
                            known](nn::Module& model) -> std::optional<ModelSharding> {
        auto options = sharding_options_of(plugin, model, processes.device());
        if (!options) return std::nullopt;
        const Group& all = processes.process_group();
        const DeepSpeedGroups sizes = deepspeed_groups_of(*plugin.hf_ds_config, all->size());
        Groups& groups = (*known)[{sizes.shards, sizes.secondary}];
        if (groups.shards == nullptr) groups = groups_of(sizes, all);
        options->replicas = groups.replicas;
        options->secondary = groups.secondary;
        options->offload_to_cpu =
            plugin.offload_optimizer_device != "none" || plugin.offload_param_device != "none";
        if (plugin.offload_param_device == "nvme")
            options->part_folder = plugin.offload_param_nvme_path;
        return ModelSharding{groups.shards, std::move(*options)};
    };
}

}  // namespace

void set_sharding(PreparationOptions& preparation, const AcceleratorOptions& options,
                  const PartialState& processes, const std::string& mixed_precision) {
    if (options.fsdp_plugin && options.fsdp_plugin->shards())
        set_fsdp(preparation, *options.fsdp_plugin, processes, mixed_precision != "no");
    if (options.deepspeed_plugin) set_deepspeed(preparation, *options.deepspeed_plugin, processes);
}

}  // namespace axle::accel
