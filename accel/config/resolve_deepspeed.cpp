#include "accel/config/resolve_deepspeed.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "accel/config/environment.h"
#include "accel/config/resolve_options.h"
#include "accel/config/resolve_plugins.h"
#include "core/files/file.h"
#include "core/log.h"

namespace axle::accel {
namespace {

constexpr const char* kAccumulation = "gradient_accumulation_steps";

// Fills the sections fp16 and bf16, and returns the precision that they select. `wanted` is the
// precision of the Accelerator.
std::string resolve_precision(DeepSpeedConfig& config, const std::string& wanted) {
    const bool wants_fp16 = wanted == "fp16", wants_bf16 = wanted == "bf16" || wanted == "fp8";
    const auto enable = [&](const char* section, bool is_wanted) {
        const std::string name = str(section, ".enabled");
        const Tree* const given = config.find(section);
        if (given == nullptr || given->is_null())
            config.set(section, {{"enabled", is_wanted}});
        else if (!given->is_map())
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", section,
                                 ": must be a section: ", *given));
        const Tree enabled = config.get_value(name, false);
        if (config.is_auto(name) || enabled.is_null()) config.set(name, is_wanted);
        const Tree value = config.get_value(name);
        if (!value.is_boolean())
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": ", name,
                                 ": must be true, false or \"auto\": ", value));
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

// If the plugin sets the number of micro-batches per update, copies the number to the options;
// otherwise copies the number of the options to the plugin.
void resolve_accumulation(AcceleratorOptions& options, DeepSpeedPlugin& p) {
    const auto variable = text_variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
    const bool is_auto =
        !options.gradient_accumulation_plugin && variable && lower(*variable) == "auto";
    const int steps = is_auto ? positive_steps("Accelerator", options.gradient_accumulation_steps)
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

// Logs a warning with the options of a configuration that have no effect.
void warn_of_unused_sections(const DeepSpeedConfig& config) {
    constexpr std::array<std::string_view, 16> kUsed = {"train_batch_size",
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
    std::string unused;
    for (const auto& [key, value] : config.tree().entries()) {
        const bool is_on = value.is_map() && value.contains("enabled")
                               ? config.is_true(str(key, ".enabled"))
                               : config.is_true(key);
        if (!is_on || std::find(kUsed.begin(), kUsed.end(), key) != kUsed.end()) continue;
        constexpr std::size_t kLongest = 1000;
        if (unused.size() > kLongest) {
            unused += ", ...";
            break;
        }
        unused += (unused.empty() ? "" : ", ") + printable(key);
    }
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
        const Tree size = p.hf_ds_config->get_value(str("zero_optimization.", key));
        if (size.is_number() && size.number() > 1)
            not_there(str("hf_ds_config: zero_optimization.", key),
                      "sharding over a part of the processes", "leave it out");
    }
    warn_of_unused_sections(*p.hf_ds_config);
}

}  // namespace axle::accel
