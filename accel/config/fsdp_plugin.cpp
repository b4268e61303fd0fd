#include "accel/config/fsdp_plugin.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "accel/config/environment.h"
#include "accel/config/resolve_fsdp.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "dist/sharding/wrap_policy.h"

namespace axle::accel {
namespace {

constexpr const char* kPlugin = "FullyShardedDataParallelPlugin";

std::string upper(std::string text) {
    for (char& c : text)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    return text;
}

DType dtype_named(const std::string& precision) {
    const std::string name = lower(precision);
    if (name == "bf16" || name == "fp8") return bf16;
    if (name == "fp16") return f16;
    if (name == "fp32") return f32;
    throw ValueError(str(kPlugin, ": mixed_precision_policy: must be fp8, fp16, bf16 or fp32: ",
                         in_quotes(precision)));
}

DType checked(const std::string& field, DType dtype) {
    if (dtype == f32 || dtype == f16 || dtype == bf16) return dtype;
    throw ValueError(str(kPlugin, ": mixed_precision_policy: ", field,
                         " must be float32, float16 or bfloat16: ", dtype));
}

// Returns the field of MixedPrecisionPolicy that exists only in this version.
const char* last_field(int version) { return version == 2 ? "output_dtype" : "buffer_dtype"; }

MixedPrecisionPolicy policy_of(const std::map<std::string, DType>& fields, int version) {
    const std::vector<std::string> names = {"param_dtype", "reduce_dtype", last_field(version)};
    const bool fits = fields.size() == names.size() &&
                      std::ranges::all_of(names, [&](const auto& n) { return fields.contains(n); });
    if (!fits) {
        std::string given;
        for (const auto& [name, dtype] : fields) given += (given.empty() ? "" : ", ") + name;
        throw ValueError(str(kPlugin, ": mixed_precision_policy: a map for version ", version,
                             " must have the keys param_dtype, reduce_dtype and ",
                             last_field(version), "; it has ", given.empty() ? "none" : given));
    }
    const auto value = [&](const std::string& name) { return checked(name, fields.at(name)); };
    MixedPrecisionPolicy policy{.param_dtype = value(names[0]), .reduce_dtype = value(names[1])};
    (version == 2 ? policy.output_dtype : policy.buffer_dtype) = value(names[2]);
    return policy;
}

void check_policy(const MixedPrecisionPolicy& policy, int version) {
    if ((version == 2 ? policy.buffer_dtype : policy.output_dtype).has_value())
        throw ValueError(
            str(kPlugin, ": mixed_precision_policy: ", last_field(version == 2 ? 1 : 2),
                " is only for version ", version == 2 ? 1 : 2, " of FSDP, and fsdp_version is ",
                version, "; remove it or set fsdp_version to ", version == 2 ? 1 : 2));
    const std::pair<const char*, std::optional<DType>> dtypes[] = {
        {"param_dtype", policy.param_dtype},
        {"reduce_dtype", policy.reduce_dtype},
        {"buffer_dtype", policy.buffer_dtype},
        {"output_dtype", policy.output_dtype}};
    for (const auto& [name, dtype] : dtypes)
        if (dtype && !is_floating(*dtype))
            throw ValueError(str(kPlugin, ": mixed_precision_policy: ", name,
                                 " must be a floating dtype: ", *dtype));
}

}  // namespace

const std::vector<std::string>& fsdp_strategies() {
    static const std::vector<std::string> names = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                   "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
    return names;
}

const std::vector<std::string>& fsdp_backward_prefetches() {
    static const std::vector<std::string> names = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
    return names;
}

const std::vector<std::string>& fsdp_auto_wrap_policies() {
    static const std::vector<std::string> names = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP",
                                                   "NO_WRAP"};
    return names;
}

const std::vector<std::string>& fsdp_state_dict_types() {
    static const std::vector<std::string> names = {"FULL_STATE_DICT", "LOCAL_STATE_DICT",
                                                   "SHARDED_STATE_DICT"};
    return names;
}

std::string fsdp_name(const std::string& option, const std::string& text,
                      const std::vector<std::string>& names, bool has_numbers) {
    std::string set;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (upper(text) == names[i] || (has_numbers && text == str(i + 1))) return names[i];
        set += (set.empty() ? "" : ", ") + names[i];
    }
    throw ValueError(str(option, ": must be one of ", set, ": ", in_quotes(text)));
}

void FullyShardedDataParallelPlugin::set_state_dict_type(const std::string& type) {
    const int version = fsdp_version.value_or(1);
    std::string name = type.empty() ? state_dict_type : type;
    if (name.empty())
        name = text_variable("FSDP_STATE_DICT_TYPE")
                   .value_or(version == 1 ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT");
    name = fsdp_name(str(kPlugin, ": state_dict_type"), name, fsdp_state_dict_types());
    if (version == 2 && name == "LOCAL_STATE_DICT")
        throw ValueError(str(kPlugin,
                             ": state_dict_type: LOCAL_STATE_DICT is for version 1 of FSDP; use "
                             "SHARDED_STATE_DICT or FULL_STATE_DICT"));
    state_dict_type = std::move(name);
}

void FullyShardedDataParallelPlugin::set_mixed_precision(const std::string& precision,
                                                         bool buffer_autocast,
                                                         bool override_policy) {
    set_mixed_precision(dtype_named(precision), buffer_autocast, override_policy);
}

void FullyShardedDataParallelPlugin::set_mixed_precision(DType dtype, bool buffer_autocast,
                                                         bool override_policy) {
    const int version = fsdp_version.value_or(1);
    checked("the dtype", dtype);
    auto& given = mixed_precision_policy;
    if (override_policy || std::holds_alternative<std::monostate>(given)) {
        MixedPrecisionPolicy policy{.param_dtype = dtype, .reduce_dtype = dtype};
        if (version == 2)
            policy.output_dtype = dtype;
        else
            policy.buffer_dtype = buffer_autocast ? f32 : dtype;
        given = policy;
    } else if (const auto* const name = std::get_if<std::string>(&given)) {
        set_mixed_precision(dtype_named(*name), buffer_autocast, true);
    } else if (const auto* const fields = std::get_if<std::map<std::string, DType>>(&given)) {
        given = policy_of(*fields, version);
    }
    check_policy(std::get<MixedPrecisionPolicy>(given), version);
}

void FullyShardedDataParallelPlugin::set_auto_wrap_policy(nn::Module& model) {
    auto* const name = std::get_if<std::string>(&auto_wrap_policy);
    if (name == nullptr) return;
    if (*name == "TRANSFORMER_BASED_WRAP") {
        if (!transformer_cls_names_to_wrap)
            transformer_cls_names_to_wrap = model.no_split_modules();
        dist::units_by_type(model, *transformer_cls_names_to_wrap);  // checks the names
        if (transformer_cls_names_to_wrap->empty())
            log(LogLevel::warning, kPlugin,
                ": transformer_cls_names_to_wrap (by default no_split_modules() of the model) is "
                "empty: all parameters are gathered together");
    } else if (*name == "SIZE_BASED_WRAP" && min_num_params.value_or(0) == 0) {
        *name = "NO_WRAP";
    }
}

std::string FullyShardedDataParallelPlugin::strategy() const {
    if (fsdp_version.value_or(1) == 1)
        return sharding_strategy.empty() ? "FULL_SHARD" : sharding_strategy;
    const bool* const frees = std::get_if<bool>(&reshard_after_forward);
    return frees == nullptr || *frees ? "FULL_SHARD" : "SHARD_GRAD_OP";
}

dist::FullStateOptions state_dict_config_of(const FullyShardedDataParallelPlugin& plugin,
                                            int num_processes, bool of_optimizer) {
    if (num_processes == 1) return {.rank0_only = false, .offload_to_cpu = false};
    const auto& given = of_optimizer ? plugin.optim_state_dict_config : plugin.state_dict_config;
    return given.value_or(dist::FullStateOptions{
        .rank0_only = plugin.state_dict_type == "FULL_STATE_DICT", .offload_to_cpu = true});
}

}  // namespace axle::accel
