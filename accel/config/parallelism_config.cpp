#include "accel/config/parallelism_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel/config/environment.h"
#include "accel/config/options.h"
#include "accel/config/resolve_plugins.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "core/tree/tree.h"

namespace axle::accel {
namespace {

using DimensionNames = std::vector<std::string>;
using Dimension = dist::DeviceMesh::Dimension;

// Returns the names of the dimensions that are larger than 1.
DimensionNames enabled(std::initializer_list<Dimension> dimensions) {
    DimensionNames names;
    for (const auto& [name, size] : dimensions)
        if (size > 1) names.push_back(name);
    return names;
}

void check_choice(const char* option, const std::string& value,
                  const std::vector<std::string>& names) {
    std::string set;
    for (const std::string& name : names) {
        if (value == name) return;
        set += (set.empty() ? "" : ", ") + name;
    }
    throw ValueError(
        str("ParallelismConfig: ", option, ": must be one of ", set, ": '", printable(value), "'"));
}

void check_sizes(const ParallelismConfig& config) {
    constexpr std::int64_t kMaxProcesses = 1 << 20;
    const std::array<dist::DeviceMesh::Dimension, 6> sizes = {
        {{"dp_replicate", config.dp_replicate_size},
         {"dp_shard", config.dp_shard_size},
         {"cp", config.cp_size},
         {"sp", config.sp_size},
         {"tp", config.tp_size},
         {"pp", config.pp_size}}};
    std::int64_t total = 1;
    for (const auto& [name, size] : sizes) {
        if (size < 1)
            throw ValueError(str("ParallelismConfig: ", name, "_size: must be at least 1: ", size));
        total *= size;
        if (total > kMaxProcesses)
            throw ValueError(str("ParallelismConfig: ", name,
                                 "_size: the product of the sizes must be at most ", kMaxProcesses,
                                 ": it is at least ", total));
    }
    if (config.ep_size < 1)
        throw ValueError(str("ParallelismConfig: ep_size: must be at least 1: ", config.ep_size));
    // No sharding is needed with a pipeline, which averages gradients over replicas itself.
    if ((config.tp_enabled() || config.cp_enabled()) && config.dp_replicate_enabled() &&
        !config.dp_shard_enabled() && !config.pp_enabled())
        throw ValueError(str(
            "ParallelismConfig: tp_size or cp_size above 1 with dp_replicate_size above 1 needs "
            "dp_shard_size or pp_size above 1: tp_size ",
            config.tp_size, ", cp_size ", config.cp_size, ", dp_replicate_size ",
            config.dp_replicate_size, ", dp_shard_size ", config.dp_shard_size));
    if (config.cp_enabled() && config.sp_enabled())
        throw ValueError(str(
            "ParallelismConfig: cp_size above 1 cannot be combined with sp_size above 1: cp_size ",
            config.cp_size, ", sp_size ", config.sp_size));
}

void resolve_cp(TorchContextParallelConfig& handler) {
    std::string& strategy = handler.cp_comm_strategy;
    if (strategy.empty())
        strategy = text_variable("PARALLELISM_CONFIG_CP_COMM_STRATEGY").value_or("allgather");
    check_choice("cp_comm_strategy", strategy, {"allgather", "alltoall"});
}

void resolve_sp(DeepSpeedSequenceParallelConfig& handler) {
    auto& length = handler.sp_seq_length;
    auto& is_variable = handler.sp_seq_length_is_variable;
    if (!length)
        if (const auto number = number_variable("PARALLELISM_CONFIG_SP_SEQ_LENGTH"))
            length = *number;
    if (!is_variable)
        is_variable = flag_variable("PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE").value_or(true);
    if (!*is_variable && !length)
        throw ValueError(
            "ParallelismConfig: sp_seq_length: must be set if sp_seq_length_is_variable is false, "
            "in sp_handler or as PARALLELISM_CONFIG_SP_SEQ_LENGTH");
    if (length && *length < 1)
        throw ValueError(str("ParallelismConfig: sp_seq_length: must be at least 1: ", *length));
    std::string& name = handler.sp_attn_implementation;
    if (name.empty())
        name = text_variable("PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION").value_or("");
    if (name.empty() || name.find('/') != std::string::npos) return;
    check_choice("sp_attn_implementation", name,
                 {"sdpa", "flash_attention_2", "flash_attention_3"});
}

// Checks the handlers, and creates missing handlers of enabled dimensions.
void resolve_handlers(ParallelismConfig& config) {
    const auto resolve = [](const char* dimension, bool is_enabled, auto& handler) {
        if (is_enabled && !handler) handler.emplace();
        if (!is_enabled && handler)
            log(LogLevel::warning, "ParallelismConfig: ", dimension,
                "_handler has no effect, "
                "because ",
                dimension, "_size is 1");
        return handler.has_value();
    };
    if (resolve("tp", config.tp_enabled(), config.tp_handler) && config.tp_handler->enable_async_tp)
        log(LogLevel::warning, "ParallelismConfig: enable_async_tp has no effect");
    if (resolve("cp", config.cp_enabled(), config.cp_handler)) resolve_cp(*config.cp_handler);
    if (resolve("sp", config.sp_enabled(), config.sp_handler)) resolve_sp(*config.sp_handler);
}

bool is_fsdp2(const AcceleratorOptions& options) {
    return options.fsdp_plugin && options.fsdp_plugin->fsdp_version == 2;
}

}  // namespace

std::optional<ParallelismConfig> ParallelismConfig::from_environment() {
    if (!flag_variable("ACCELERATE_USE_PARALLELISM_CONFIG").value_or(false)) return std::nullopt;
    ParallelismConfig config;
    const auto read = [](const char* variable, int& size) {
        size = number_variable(variable).value_or(size);
    };
    read("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", config.dp_replicate_size);
    read("PARALLELISM_CONFIG_DP_SHARD_SIZE", config.dp_shard_size);
    read("PARALLELISM_CONFIG_TP_SIZE", config.tp_size);
    read("PARALLELISM_CONFIG_CP_SIZE", config.cp_size);
    read("PARALLELISM_CONFIG_SP_SIZE", config.sp_size);
    read("PARALLELISM_CONFIG_PP_SIZE", config.pp_size);
    read("PARALLELISM_CONFIG_EP_SIZE", config.ep_size);
    config.cp_backend = text_variable("PARALLELISM_CONFIG_CP_BACKEND").value_or("torch");
    config.sp_backend = text_variable("PARALLELISM_CONFIG_SP_BACKEND").value_or("deepspeed");
    return config;
}

std::vector<Dimension> ParallelismConfig::mesh_dimensions() const {
    std::vector<Dimension> dimensions;
    for (const Dimension& dimension : {Dimension{"pp", pp_size},
                                       {"dp_replicate", dp_replicate_size},
                                       {"dp_shard", dp_shard_size},
                                       {"cp", cp_size},
                                       {"sp", sp_size},
                                       {"tp", tp_size}})
        if (dimension.size > 1) dimensions.push_back(dimension);
    return dimensions;
}

DimensionNames ParallelismConfig::dp_dim_names() const {
    return enabled({{"dp_replicate", dp_replicate_size}, {"dp_shard", dp_shard_size}});
}
DimensionNames ParallelismConfig::non_dp_dim_names() const {
    return enabled({{"tp", tp_size}, {"cp", cp_size}, {"sp", sp_size}, {"pp", pp_size}});
}
DimensionNames ParallelismConfig::dp_shard_cp_dim_names() const {
    return enabled({{"dp_shard", dp_shard_size}, {"cp", cp_size}});
}
DimensionNames ParallelismConfig::dp_cp_dim_names() const {
    return enabled(
        {{"dp_replicate", dp_replicate_size}, {"dp_shard", dp_shard_size}, {"cp", cp_size}});
}
DimensionNames ParallelismConfig::fsdp_dim_names() const {
    DimensionNames names = enabled({{"dp_replicate", dp_replicate_size}});
    names.emplace_back("dp_shard_cp");
    return names;
}

std::string ParallelismConfig::cp_comm_strategy() const {
    return cp_handler && !cp_handler->cp_comm_strategy.empty() ? cp_handler->cp_comm_strategy
                                                               : "allgather";
}

std::string ParallelismConfig::to_json() const {
    Tree tree = {{"dp_replicate_size", dp_replicate_size},
                 {"dp_shard_size", dp_shard_size},
                 {"tp_size", tp_size},
                 {"cp_size", cp_size},
                 {"sp_size", sp_size},
                 {"pp_size", pp_size},
                 {"ep_size", ep_size},
                 {"cp_backend", cp_backend},
                 {"sp_backend", sp_backend},
                 {"tp_handler", Tree()},
                 {"cp_handler", Tree()},
                 {"sp_handler", Tree()}};
    if (tp_handler) tree.set("tp_handler", Tree{{"enable_async_tp", tp_handler->enable_async_tp}});
    if (cp_handler) tree.set("cp_handler", Tree{{"cp_comm_strategy", cp_comm_strategy()}});
    if (sp_handler) {
        Tree handler = Tree::map();
        handler.set("sp_seq_length",
                    sp_handler->sp_seq_length ? Tree(*sp_handler->sp_seq_length) : Tree());
        handler.set("sp_seq_length_is_variable",
                    sp_handler->sp_seq_length_is_variable.value_or(true));
        const std::string& name = sp_handler->sp_attn_implementation;
        handler.set("sp_attn_implementation", name.empty() ? Tree() : Tree(name));
        tree.set("sp_handler", std::move(handler));
    }
    return axle::to_json(tree);
}

// --- resolving and checking options

void read_parallelism(AcceleratorOptions& options) {
    auto& config = options.parallelism_config;
    if (options.torch_tp_plugin) {
        if (config)
            throw UsageError(
                "Accelerator: torch_tp_plugin and parallelism_config are both given; use one");
        config = ParallelismConfig{.tp_size = options.torch_tp_plugin->tp_size};
    }
    if (!config) config = ParallelismConfig::from_environment();
    if (!config) return;
    if (options.device_mesh)
        throw UsageError("Accelerator: parallelism_config and device_mesh are both given; use one");
    check_sizes(*config);
    check_choice("cp_backend", config->cp_backend, {"torch"});
    check_choice("sp_backend", config->sp_backend, {"deepspeed"});
    resolve_handlers(*config);
}

void check_parallelism(const AcceleratorOptions& options, int num_processes) {
    const auto& config = options.parallelism_config;
    if (!config) return;
    const int total = config->total_size();
    if (total != 1 && total != num_processes)
        throw ValueError(str("ParallelismConfig: the product of the sizes is ", total,
                             ", but must be ", num_processes, ", the number of processes"));
    if (config->ep_enabled()) {
        if (config->dp_shard_enabled() || config->tp_enabled() || config->cp_enabled() ||
            config->sp_enabled() || options.fsdp_plugin || options.deepspeed_plugin)
            throw_not_implemented(
                "parallelism_config.ep_size",
                "division of the experts of a model that is also sharded or divided in another way",
                "use it with dp_replicate_size and pp_size only");
        const int replicas = num_processes / config->pp_size;
        if (replicas % config->ep_size != 0)
            throw ValueError(str("ParallelismConfig: ep_size must divide the number of replicas: ",
                                 replicas, " replicas, ep_size ", config->ep_size));
    }
    if (config->dp_shard_enabled() && !options.fsdp_plugin && !options.deepspeed_plugin)
        throw ValueError(
            str("ParallelismConfig: dp_shard_size above 1 needs fsdp_plugin or deepspeed_plugin: ",
                "dp_shard_size is ", config->dp_shard_size));
    const bool is_standalone = flag_variable("ACCELERATE_ALLOW_CP_STANDALONE").value_or(false) &&
                               !config->dp_shard_enabled();
    // No sharding is needed with a pipeline, which averages gradients over these processes itself.
    if (config->cp_enabled() && !is_fsdp2(options) && !is_standalone && !config->pp_enabled())
        throw ValueError(
            str("ParallelismConfig: cp_size above 1 needs fsdp_plugin with "
                "fsdp_version 2, or pp_size above 1, or ACCELERATE_ALLOW_CP_STANDALONE=1 "
                "without dp_shard_size: cp_size is ",
                config->cp_size, ", dp_shard_size is ", config->dp_shard_size));
    if (config->tp_enabled() && options.deepspeed_plugin)
        throw_not_implemented("parallelism_config.tp_size",
                              "tensor parallel training with DeepSpeed", "use fsdp_plugin");
}

std::shared_ptr<const dist::DeviceMesh> mesh_of(const AcceleratorOptions& options,
                                                const std::shared_ptr<dist::ProcessGroup>& group) {
    if (!options.parallelism_config && !options.megatron_lm_plugin) return options.device_mesh;
    ParallelismConfig config = options.parallelism_config.value_or(ParallelismConfig());
    if (options.megatron_lm_plugin) {
        config.pp_size = options.megatron_lm_plugin->pp_degree.value_or(1);
        config.tp_size = options.megatron_lm_plugin->tp_degree.value_or(1);
        if (!options.parallelism_config)
            config.dp_replicate_size = group->size() / (config.pp_size * config.tp_size);
    }
    if (config.total_size() == 1) config.dp_replicate_size = group->size();
    std::vector<dist::DeviceMesh::Dimension> dimensions = config.mesh_dimensions();
    if (dimensions.empty()) return nullptr;
    auto mesh = std::make_shared<dist::DeviceMesh>(group, std::move(dimensions));
    // DeviceMesh::get_group() returns these groups by name.
    mesh->add_flattened("dp", config.dp_dim_names());
    mesh->add_flattened("dp_shard_cp", config.dp_shard_cp_dim_names());
    mesh->add_flattened("dp_cp", config.dp_cp_dim_names());
    return mesh;
}

}  // namespace axle::accel
