#include "accel/config/resolve_plugins.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "accel/config/environment.h"
#include "accel/config/resolve_deepspeed.h"
#include "accel/config/resolve_fsdp.h"
#include "core/files/file.h"
#include "core/log.h"

namespace axle::accel {
namespace {

using Dimension = dist::DeviceMesh::Dimension;

// Returns the dimensions in the order of the mesh.
std::array<Dimension, 5> dimensions_of(const ParallelismConfig& config) {
    return {{{"dp_replicate", config.dp_replicate_size},
             {"dp_shard", config.dp_shard_size},
             {"cp", config.cp_size},
             {"sp", config.sp_size},
             {"tp", config.tp_size}}};
}

template <class Names>
void check_choice(const char* option, const std::string& value, const Names& names) {
    std::string set;
    for (const auto& name : names) {
        if (value == name) return;
        set += (set.empty() ? "" : ", ") + std::string(name);
    }
    throw ValueError(str(option, ": must be one of ", set, ": '", printable(value), "'"));
}
void check_choice(const char* option, const std::string& value,
                  std::initializer_list<const char*> names) {
    check_choice<std::initializer_list<const char*>>(option, value, names);
}

void refuse_both(bool both, const char* a, const char* b) {
    if (both) throw UsageError(str("Accelerator: ", a, " and ", b, " are both given; use one"));
}

bool is_requested(const char* variable) { return flag_variable(variable).value_or(false); }

void read_dynamo(AcceleratorOptions& options) {
    refuse_both(options.dynamo_plugin && !options.dynamo_backend.empty(), "dynamo_backend",
                "dynamo_plugin");
    TorchDynamoPlugin plugin = options.dynamo_plugin.value_or(TorchDynamoPlugin());
    if (!options.dynamo_backend.empty()) plugin.backend = options.dynamo_backend;
    const auto read = [](const char* variable, std::string& field, const char* otherwise) {
        if (field.empty()) field = text_variable(variable).value_or(otherwise);
        field = lower(field);
    };
    read("ACCELERATE_DYNAMO_BACKEND", plugin.backend, "no");
    read("ACCELERATE_DYNAMO_MODE", plugin.mode, "default");
    check_choice("dynamo_backend", plugin.backend, known_dynamo_backends());
    check_choice("dynamo_plugin.mode", plugin.mode, {"default", "reduce-overhead", "max-autotune"});
    const auto read_flag = [](const char* variable, std::optional<bool>& field) {
        if (!field) field = flag_variable(variable);
    };
    read_flag("ACCELERATE_DYNAMO_USE_FULLGRAPH", plugin.fullgraph);
    read_flag("ACCELERATE_DYNAMO_USE_DYNAMIC", plugin.dynamic);
    read_flag("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", plugin.use_regional_compilation);
    options.dynamo_plugin = plugin;
    options.dynamo_backend.clear();
}

void check_sizes(const ParallelismConfig& config) {
    constexpr std::int64_t kMaxProcesses = 1 << 20;
    std::int64_t total = 1;
    for (const Dimension& dimension : dimensions_of(config)) {
        if (dimension.size < 1)
            throw ValueError(str("ParallelismConfig: ", dimension.name,
                                 "_size: must be at least 1: ", dimension.size));
        total *= dimension.size;
        if (total > kMaxProcesses)
            throw ValueError(str("ParallelismConfig: ", dimension.name,
                                 "_size: the product of the sizes is ", total,
                                 ", but must be at most ", kMaxProcesses));
    }
    if ((config.tp_size > 1 || config.cp_size > 1) && config.dp_replicate_size > 1 &&
        config.dp_shard_size == 1)
        throw ValueError(str(
            "ParallelismConfig: tp_size or cp_size above 1 with dp_replicate_size above 1 needs "
            "dp_shard_size above 1: tp_size ",
            config.tp_size, ", cp_size ", config.cp_size, ", dp_replicate_size ",
            config.dp_replicate_size, ", dp_shard_size ", config.dp_shard_size));
    if (config.cp_size > 1 && config.sp_size > 1)
        throw ValueError(str(
            "ParallelismConfig: cp_size above 1 cannot be combined with sp_size above 1: cp_size ",
            config.cp_size, ", sp_size ", config.sp_size));
    check_choice("ParallelismConfig: cp_backend", config.cp_backend, {"torch"});
    check_choice("ParallelismConfig: sp_backend", config.sp_backend, {"deepspeed"});
}

void read_parallelism(AcceleratorOptions& options) {
    refuse_both(options.torch_tp_plugin && options.parallelism_config, "torch_tp_plugin",
                "parallelism_config");
    if (options.torch_tp_plugin)
        options.parallelism_config = ParallelismConfig{.tp_size = options.torch_tp_plugin->tp_size};
    if (!options.parallelism_config && is_requested("ACCELERATE_USE_PARALLELISM_CONFIG")) {
        ParallelismConfig config;
        const auto read = [](const char* variable, int& size) {
            size = number_variable(variable).value_or(size);
        };
        read("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", config.dp_replicate_size);
        read("PARALLELISM_CONFIG_DP_SHARD_SIZE", config.dp_shard_size);
        read("PARALLELISM_CONFIG_TP_SIZE", config.tp_size);
        read("PARALLELISM_CONFIG_CP_SIZE", config.cp_size);
        read("PARALLELISM_CONFIG_SP_SIZE", config.sp_size);
        config.cp_backend = text_variable("PARALLELISM_CONFIG_CP_BACKEND").value_or("torch");
        config.sp_backend = text_variable("PARALLELISM_CONFIG_SP_BACKEND").value_or("deepspeed");
        options.parallelism_config = config;
    }
    refuse_both(options.parallelism_config && options.device_mesh, "parallelism_config",
                "device_mesh");
    if (options.parallelism_config) check_sizes(*options.parallelism_config);
}

}  // namespace

void throw_not_implemented(const std::string& option, const char* what, const char* fix) {
    throw NotImplementedError(
        str("Accelerator: ", option, ": ", what, " is not implemented yet; ", fix));
}

const std::vector<std::string>& known_dynamo_backends() {
    static const std::vector<std::string> names = {"no",
                                                   "eager",
                                                   "aot_eager",
                                                   "inductor",
                                                   "aot_ts_nvfuser",
                                                   "nvprims_nvfuser",
                                                   "cudagraphs",
                                                   "ofi",
                                                   "fx2trt",
                                                   "onnxrt",
                                                   "tensorrt",
                                                   "aot_torchxla_trace_once",
                                                   "torhchxla_trace_once",
                                                   "ipex",
                                                   "tvm",
                                                   "hpu_backend"};
    return names;
}

void read_plugins(AcceleratorOptions& options) {
    read_dynamo(options);
    read_parallelism(options);
    resolve_fsdp(options);
    resolve_deepspeed(options);
    if (!options.megatron_lm_plugin && is_requested("ACCELERATE_USE_MEGATRON_LM"))
        options.megatron_lm_plugin = MegatronLMPlugin();
}

void check_plugins(const AcceleratorOptions& options, int num_processes) {
    if (const auto& config = options.parallelism_config) {
        const std::int64_t total = config->total_size();
        if (total != 1 && total != num_processes)
            throw ValueError(str("ParallelismConfig: the product of the sizes is ", total,
                                 ", but must be ", num_processes, ", the number of processes"));
        if (config->dp_shard_size > 1 && !options.fsdp_plugin)
            throw ValueError(str("ParallelismConfig: dp_shard_size above 1 needs fsdp_plugin: ",
                                 "dp_shard_size is ", config->dp_shard_size));
        if (config->tp_size > 1)
            throw_not_implemented("parallelism_config.tp_size", "tensor parallel training",
                                  "leave it at 1");
        if (config->cp_size > 1)
            throw_not_implemented("parallelism_config.cp_size", "context parallel training",
                                  "leave it at 1");
        if (config->sp_size > 1)
            throw_not_implemented("parallelism_config.sp_size", "sequence parallel training",
                                  "leave it at 1");
    }
    if (options.deepspeed_plugin) check_deepspeed(*options.deepspeed_plugin);
    if (options.megatron_lm_plugin)
        throw_not_implemented("megatron_lm_plugin", "tensor and pipeline parallel training",
                              "leave it out");
}

void explain_dynamo(const AcceleratorOptions& options) {
    if (options.dynamo_plugin->compiles())
        log(LogLevel::warning, "dynamo_backend '", options.dynamo_plugin->backend,
            "': models are not compiled; on a GPU Accelerator::compile() captures a step as a "
            "graph, on a CPU it changes nothing");
}

std::shared_ptr<const dist::DeviceMesh> mesh_of(const AcceleratorOptions& options,
                                                const std::shared_ptr<dist::ProcessGroup>& group) {
    if (!options.parallelism_config) return options.device_mesh;
    ParallelismConfig config = *options.parallelism_config;
    if (config.total_size() == 1) config.dp_replicate_size = group->size();
    std::vector<Dimension> enabled;
    for (const Dimension& dimension : dimensions_of(config))
        if (dimension.size > 1) enabled.push_back(dimension);
    if (enabled.empty()) return nullptr;
    return std::make_shared<const dist::DeviceMesh>(group, std::move(enabled));
}

}  // namespace axle::accel
