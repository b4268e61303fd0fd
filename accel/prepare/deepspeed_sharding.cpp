#include "accel/prepare/deepspeed_sharding.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "core/files/file.h"
#include "dist/sharding/wrap_policy.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

// Returns a number of elements of the section zero_optimization, rounded down, or `otherwise` if it
// is missing. Throws ValueError unless it is from 0 to 10^18.
std::int64_t size_in(const DeepSpeedConfig& config, const char* key, std::int64_t otherwise) {
    const std::string name = str("zero_optimization.", key);
    const Tree value = config.get_value(name);
    if (value.is_null()) return otherwise;
    constexpr double kMost = 1e18;
    // Sizes in DeepSpeed's files may be floating-point numbers, such as 5e8.
    if (!value.is_number() || !(value.number() >= 0) || value.number() > kMost)
        throw ValueError(
            str("DeepSpeedPlugin: ", config.source(), ": ", name,
                ": must be a number of elements from 0 to 10^18: ", printable(str(value))));
    return static_cast<std::int64_t>(value.number());
}

std::optional<DType> communication_dtype(const DeepSpeedConfig& config) {
    const Tree value = config.get_value("communication_data_type");
    if (value.is_null()) return std::nullopt;
    const std::string name = value.is_string() ? value.string() : "";
    if (name == "fp32") return f32;
    if (name == "fp16") return f16;
    if (name == "bf16") return bf16;
    throw ValueError(str("DeepSpeedPlugin: ", config.source(),
                         ": communication_data_type: must be \"fp32\", \"fp16\" or \"bf16\": ",
                         printable(str(value))));
}

dist::ShardingPrecision precision_of(const DeepSpeedConfig& config) {
    dist::ShardingPrecision precision;
    if (config.is_true("fp16.enabled"))
        precision.param_dtype = f16;
    else if (config.is_true("bf16.enabled"))
        precision.param_dtype = bf16;
    precision.reduce_dtype = precision.param_dtype;
    if (const auto dtype = communication_dtype(config)) precision.reduce_dtype = dtype;
    return precision;
}

std::vector<dist::ShardUnit> units_of(const DeepSpeedPlugin& plugin, nn::Module& model) {
    constexpr std::int64_t kPersistenceThreshold = 100000;  // the default of DeepSpeed
    std::vector<std::string> types = model.no_split_modules();
    if (!plugin.transformer_moe_cls_names.empty()) {
        static_cast<void>(dist::units_by_type(model, plugin.transformer_moe_cls_names,
                                              "DeepSpeedPlugin: transformer_moe_cls_names"));
        types.insert(types.end(), plugin.transformer_moe_cls_names.begin(),
                     plugin.transformer_moe_cls_names.end());
    }
    if (!types.empty()) return dist::units_by_type(model, types, "Module::no_split_modules");
    const std::int64_t least =
        size_in(*plugin.hf_ds_config, "stage3_param_persistence_threshold", kPersistenceThreshold);
    return dist::units_by_size(model, std::max<std::int64_t>(1, least));
}

}  // namespace

std::optional<dist::ShardingOptions> sharding_options_of(const DeepSpeedPlugin& plugin,
                                                         nn::Module& model, Device device) {
    const int stage = plugin.zero_stage.value_or(0);
    if (stage == 0) return std::nullopt;
    const DeepSpeedConfig& config = *plugin.hf_ds_config;
    dist::ShardingOptions options;
    options.strategy =
        stage == 3 ? dist::ShardingStrategy::full_shard : dist::ShardingStrategy::shard_optimizer;
    options.reduce_without_sync = stage >= 2;
    options.units = units_of(plugin, model);
    options.precision = precision_of(config);
    if (size_in(config, "stage3_prefetch_bucket_size", 1) == 0) {
        options.backward_prefetch = dist::BackwardPrefetch::none;
        options.forward_prefetch = false;
    }
    options.device = device;
    return options;
}

DeepSpeedGroups deepspeed_groups_of(const DeepSpeedConfig& config, int processes) {
    const auto size_of = [&](const char* key, int least) {
        const std::string name = str("zero_optimization.", key);
        const Tree value = config.get_value(name);
        if (value.is_null()) return 0;
        if (!value.is_integer())
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", name,
                                 ": must be an integer: ", printable(str(value))));
        if (value.integer() < least) return 0;
        if (value.integer() > processes || processes % value.integer() != 0)
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", name,
                                 ": must be a divisor of the number of processes, ", processes,
                                 ": ", value.integer()));
        return static_cast<int>(value.integer());
    };
    // DeepSpeed's defaults, which turn the features off, are -1 and 1.
    const DeepSpeedGroups groups{size_of("mics_shard_size", 1),
                                 size_of("zero_hpz_partition_size", 2)};
    if (groups.shards > 0 && groups.secondary > 0)
        throw ValueError(str("DeepSpeedPlugin: ", config.source(),
                             ": zero_optimization.mics_shard_size and "
                             "zero_optimization.zero_hpz_partition_size are both given; use one"));
    return groups;
}

}  // namespace axle::accel
