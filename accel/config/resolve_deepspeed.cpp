#include "accel/config/resolve_deepspeed.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "accel/config/environment.h"
#include "accel/config/resolve_options.h"
#include "accel/config/resolve_plugins.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

constexpr const char* kAccumulation = "gradient_accumulation_steps";

// Fills the sections fp16 and bf16, and returns the precision that they select. If they select
// "bf16" and `wanted`, the precision of the Accelerator, is "fp8", returns "fp8". Throws ValueError
// if a section is invalid, if both are enabled, or if they contradict a `wanted` other than "no".
std::string resolve_precision(DeepSpeedConfig& config, const std::string& wanted) {
    const bool wants_fp16 = wanted == "fp16", wants_bf16 = wanted == "bf16" || wanted == "fp8";
    const auto enable = [&](const char* section, bool is_wanted) {
        const std::string name = str(section, ".enabled");
        const Tree* const given = config.find(section);
        if (given == nullptr || given->is_null())
            config.set(section, {{"enabled", is_wanted}});
        else if (!given->is_map())
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", section,
                                 ": must be a section: ", printable(str(*given))));
        const Tree enabled = config.get_value(name, false);
        if (config.is_auto(name) || enabled.is_null()) config.set(name, is_wanted);
        const Tree value = config.get_value(name);
        if (!value.is_boolean())
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", name,
                                 ": must be true, false or \"auto\": ", printable(str(value))));
        return value.boolean();
    };
    const bool fp16 = enable("fp16", wants_fp16), bf16 = enable("bf16", wants_bf16);
    if (wanted != "no" && (fp16 != wants_fp16 || bf16 != wants_bf16))
        throw ValueError(str("DeepSpeedPlugin: mixed_precision is '", wanted, "', but in ",
                             config.source(), " fp16.enabled is ", fp16 ? "true" : "false",
                             " and bf16.enabled is ", bf16 ? "true" : "false",
                             "; set them to \"auto\", or leave mixed_precision out"));
    if (fp16 && bf16)
        throw ValueError(str("DeepSpeedPlugin: ", config.source(),
                             ": fp16.enabled and bf16.enabled are both true; enable one"));
    if (wanted == "fp8") return wanted;
    return fp16 ? "fp16" : bf16 ? "bf16" : "no";
}

// Returns the options of the gradient scaler in the section fp16. Throws NotImplementedError for a
// constant loss scale, and ValueError for an invalid number.
GradScalerKwargs loss_scaling_of(const DeepSpeedConfig& config) {
    const auto number = [&](const char* key, double low, double high) -> std::optional<double> {
        const std::string name = str("fp16.", key);
        const Tree value = config.get_value(name);
        if (value.is_null() || config.is_auto(name)) return std::nullopt;
        if (!value.is_number() || !(value.number() >= low && value.number() <= high))
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", name,
                                 ": must be a number from ", low, " to ", high, ": ",
                                 printable(str(value))));
        return value.number();
    };
    GradScalerKwargs kwargs;
    if (number("loss_scale", 0, 1e9).value_or(0) > 0)
        throw_not_implemented("deepspeed_plugin.hf_ds_config: fp16.loss_scale",
                              "a constant loss scale", "set it to 0");
    if (const auto power = number("initial_scale_power", 0, 100))
        kwargs.init_scale = std::exp2(*power);
    if (const auto steps = number("loss_scale_window", 1, 1e9))
        kwargs.growth_interval = static_cast<int>(*steps);
    return kwargs;
}

// Makes the number of micro-batches per update equal in the plugin and the options. The number of
// the plugin takes precedence if it is set.
void resolve_accumulation(AcceleratorOptions& options, DeepSpeedPlugin& p) {
    const auto variable = text_variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
    const bool is_auto =
        !options.gradient_accumulation_plugin && variable && lower(*variable) == "auto";
    const int steps = is_auto ? positive_steps("Accelerator: gradient_accumulation_steps",
                                               options.gradient_accumulation_steps)
                              : accumulation_steps(options);
    if (p.gradient_accumulation_steps && *p.gradient_accumulation_steps != steps) {
        const bool is_given = options.gradient_accumulation_steps != 1 ||
                              (options.gradient_accumulation_plugin &&
                               options.gradient_accumulation_plugin->num_steps);
        if (is_given)
            log(LogLevel::warning, "DeepSpeedPlugin: gradient_accumulation_steps is ",
                *p.gradient_accumulation_steps, " in the plugin and ", steps,
                " in the Accelerator; the Accelerator uses ", *p.gradient_accumulation_steps);
        if (!options.gradient_accumulation_plugin) options.gradient_accumulation_plugin.emplace();
        options.gradient_accumulation_plugin->num_steps = p.gradient_accumulation_steps;
        options.gradient_accumulation_steps = 1;
    }
    if (p.gradient_accumulation_steps) return;
    p.gradient_accumulation_steps = steps;
    p.hf_ds_config->set(kAccumulation, steps);
}

constexpr std::string_view kUsed[] = {"train_batch_size",
                                      "train_micro_batch_size_per_gpu",
                                      kAccumulation,
                                      "gradient_clipping",
                                      "optimizer",
                                      "scheduler",
                                      "fp16",
                                      "bf16",
                                      "zero_optimization",
                                      "communication_data_type",
                                      "tensor_parallel",
                                      "msamp",
                                      "steps_per_print",
                                      "wall_clock_breakdown",
                                      "zero_allow_untested_optimizer",
                                      "zero_force_ds_cpu_optimizer"};
// The options of zero_optimization that Axle uses, or that change only the division of
// communication and memory, not results.
constexpr std::string_view kUsedOfZero[] = {"stage",
                                            "offload_optimizer",
                                            "offload_param",
                                            "stage3_gather_16bit_weights_on_model_save",
                                            "stage3_param_persistence_threshold",
                                            "stage3_prefetch_bucket_size",
                                            "mics_shard_size",
                                            "zero_hpz_partition_size",
                                            "allgather_bucket_size",
                                            "allgather_partitions",
                                            "contiguous_gradients",
                                            "ignore_unused_parameters",
                                            "overlap_comm",
                                            "reduce_bucket_size",
                                            "reduce_scatter",
                                            "round_robin_gradients",
                                            "stage3_max_live_parameters",
                                            "stage3_max_reuse_distance",
                                            "stage3_model_persistence_threshold",
                                            "stage3_module_granularity_threshold",
                                            "sub_group_size",
                                            "use_multi_rank_bucket_allreduce"};

constexpr std::string_view kUsedOfFp16[] = {"enabled", "loss_scale", "initial_scale_power",
                                            "loss_scale_window"};

// Adds the names of those options of a section that are on and not in `used` to `names`, with the
// prefix.
void add_unused(const DeepSpeedConfig& config, const Tree& section, const std::string& prefix,
                std::span<const std::string_view> used, std::string& names) {
    constexpr std::size_t kLongest = 1000;
    for (const auto& [key, value] : section.entries()) {
        const std::string name = prefix + key;
        const bool is_on = value.is_map() && value.contains("enabled")
                               ? config.is_true(name + ".enabled")
                               : config.is_true(name);
        if (!is_on || std::find(used.begin(), used.end(), key) != used.end()) continue;
        if (names.size() > kLongest) {
            if (!names.ends_with("...")) names += ", ...";
            return;
        }
        names += (names.empty() ? "" : ", ") + printable(name);
    }
}

// Logs a warning with the options of a configuration that have no effect.
void warn_of_unused_options(const DeepSpeedConfig& config) {
    std::string unused;
    add_unused(config, config.tree(), "", kUsed, unused);
    if (const Tree* const zero = config.find("zero_optimization");
        zero != nullptr && zero->is_map())
        add_unused(config, *zero, "zero_optimization.", kUsedOfZero, unused);
    if (const Tree* const fp16 = config.find("fp16"); config.is_true("fp16.enabled"))
        add_unused(config, *fp16, "fp16.", kUsedOfFp16, unused);
    if (!unused.empty())
        log(LogLevel::warning, "DeepSpeedPlugin: ", config.source(),
            ": these options have no effect: ", unused);
}

}  // namespace

void resolve_deepspeed(AcceleratorOptions& options) {
    if (options.deepspeed_plugin && !options.deepspeed_plugins.empty())
        throw UsageError(
            "Accelerator: deepspeed_plugin and deepspeed_plugins are both given; use one");
    if (options.deepspeed_plugins.empty() && !options.deepspeed_plugin) {
        if (!flag_variable("ACCELERATE_USE_DEEPSPEED").value_or(false)) return;
        options.deepspeed_plugin.emplace();
    }
    const std::string wanted = precision(options);
    for (auto& [name, plugin] : options.deepspeed_plugins) {
        resolve(plugin);
        static_cast<void>(resolve_precision(*plugin.hf_ds_config, wanted));
    }
    if (!options.deepspeed_plugins.empty())
        options.deepspeed_plugin = options.deepspeed_plugins.front().second;
    else
        resolve(*options.deepspeed_plugin);
    DeepSpeedPlugin& active = *options.deepspeed_plugin;
    const std::string selected = resolve_precision(*active.hf_ds_config, wanted);
    if (selected != wanted) options.mixed_precision = selected;
    if (selected == "fp16" && !options.grad_scaler_kwargs)
        options.grad_scaler_kwargs = loss_scaling_of(*active.hf_ds_config);
    resolve_accumulation(options, active);
}

void check_deepspeed(const DeepSpeedPlugin& p) {
    const auto not_there = [](const std::string& option, const char* what, const char* fix) {
        throw_not_implemented("deepspeed_plugin." + option, what, fix);
    };
    if (p.enable_msamp.value_or(false) || p.hf_ds_config->is_true("msamp.enabled"))
        not_there("enable_msamp", "MS-AMP", "use mixed_precision fp8 with te_recipe_kwargs");
    const Tree* const tp = p.hf_ds_config->find("tensor_parallel.autotp_size");
    if (tp != nullptr && tp->is_number() && tp->number() > 1)
        not_there("hf_ds_config: tensor_parallel.autotp_size", "tensor parallel training",
                  "leave it out");
    for (const char* key : {"zero_quantized_weights", "zero_quantized_nontrainable_weights",
                            "zero_quantized_gradients", "mics_hierarchical_params_gather"})
        if (p.hf_ds_config->is_true(str("zero_optimization.", key)))
            not_there(str("hf_ds_config: zero_optimization.", key), "this option", "leave it out");
    for (const char* key : {"mics_shard_size", "zero_hpz_partition_size"}) {
        const std::string name = str("zero_optimization.", key);
        const Tree size = p.hf_ds_config->get_value(name);
        if (size.is_number() && size.number() > 1 && p.zero_stage != 3)
            throw ValueError(str("DeepSpeedPlugin: ", p.hf_ds_config->source(), ": ", name, ": ",
                                 size, " needs zero_stage 3: zero_stage is ", *p.zero_stage));
    }
    warn_of_unused_options(*p.hf_ds_config);
}

}  // namespace axle::accel
