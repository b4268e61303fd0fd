#include "accel/config/deepspeed_plugin.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "accel/config/environment.h"
#include "accel/config/options.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

constexpr const char* kStage = "zero_optimization.stage";
constexpr const char* kClipping = "gradient_clipping";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
constexpr const char* kOptimizerDevice = "zero_optimization.offload_optimizer.device";
constexpr const char* kOptimizerPath = "zero_optimization.offload_optimizer.nvme_path";
constexpr const char* kParamDevice = "zero_optimization.offload_param.device";
constexpr const char* kParamPath = "zero_optimization.offload_param.nvme_path";
constexpr const char* kSave = "zero_optimization.stage3_gather_16bit_weights_on_model_save";

// An option that DeepSpeedPlugin and DeepSpeed's configuration have in common.
struct SharedOption {
    const char* field;     // its name in DeepSpeedPlugin
    const char* variable;  // its environment variable
    const char* name;      // its name in a configuration
    Tree value;            // null if it is not given
    bool is_from_variable = false;
};

std::optional<double> clipping_variable() {
    constexpr const char* kName = "ACCELERATE_GRADIENT_CLIPPING";
    const auto text = text_variable(kName);
    if (!text || lower(*text) == "auto") return std::nullopt;
    if (lower(*text) == "none") return 0;
    double number = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    if (error != std::errc() || stop != end)
        throw ValueError(str(kName, ": must be a number, auto or none: ", in_quotes(*text)));
    return number;
}

std::optional<int> accumulation_variable() {
    constexpr const char* kName = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS";
    if (lower(text_variable(kName).value_or("auto")) == "auto") return std::nullopt;
    return number_variable(kName);
}

template <class T>
Tree tree_of(const std::optional<T>& value) {
    return value ? Tree(*value) : Tree();
}
Tree tree_of(const std::string& value) { return value.empty() ? Tree() : Tree(value); }

// Returns all shared options. A value comes from the field of the plugin or, if the field is not
// set, from the environment variable.
std::array<SharedOption, 8> given_options(const DeepSpeedPlugin& p) {
    std::array<SharedOption, 8> options = {{
        {"gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", kAccumulation,
         tree_of(p.gradient_accumulation_steps)},
        {"gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING", kClipping,
         tree_of(p.gradient_clipping)},
        {"zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE", kStage, tree_of(p.zero_stage)},
        {"offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
         kOptimizerDevice, tree_of(p.offload_optimizer_device)},
        {"offload_optimizer_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
         kOptimizerPath, tree_of(p.offload_optimizer_nvme_path)},
        {"offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", kParamDevice,
         tree_of(p.offload_param_device)},
        {"offload_param_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", kParamPath,
         tree_of(p.offload_param_nvme_path)},
        {"zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", kSave,
         tree_of(p.zero3_save_16bit_model)},
    }};
    for (SharedOption& option : options) {
        if (!option.value.is_null()) continue;
        const std::string_view name = option.name;
        if (name == kAccumulation)
            option.value = tree_of(accumulation_variable());
        else if (name == kClipping)
            option.value = tree_of(clipping_variable());
        else if (name == kStage)
            option.value = tree_of(number_variable(option.variable));
        else if (name == kSave)
            option.value = tree_of(flag_variable(option.variable));
        else
            option.value = tree_of(text_variable(option.variable).value_or(""));
        option.is_from_variable = !option.value.is_null();
    }
    return options;
}

// Returns the default of an option. If the option is not given, the default also replaces "auto" in
// the configuration.
Tree standard_of(const SharedOption& option) {
    const std::string_view name = option.name;
    if (name == kStage) return 2;
    if (name == kSave) return false;
    if (name == kAccumulation || name == kClipping) return "auto";
    return "none";
}

// Throws ValueError if DeepSpeed's configuration is a file, and Accelerate's configuration sets
// options that belong in this file.
void check_config_fields(const DeepSpeedConfig& config) {
    constexpr std::array kNames = {
        "gradient_accumulation_steps", "gradient_clipping",      "zero_stage",
        "offload_optimizer_device",    "offload_param_device",   "offload_param_nvme_path",
        "offload_optimizer_nvme_path", "zero3_save_16bit_model", "mixed_precision"};
    const std::string fields = text_variable("ACCELERATE_CONFIG_DS_FIELDS").value_or("");
    const auto contains = [&](const char* name) {
        return ("," + fields + ",").find(str(",", name, ",")) != std::string::npos;
    };
    if (!contains("deepspeed_config_file") && !config.is_from_file()) return;
    std::string duplicates;
    for (const char* name : kNames)
        if (contains(name)) duplicates += (duplicates.empty() ? "" : ", ") + std::string(name);
    if (!duplicates.empty())
        throw ValueError(str("DeepSpeedPlugin: the configuration of the launcher has options that ",
                             config.source(), " must contain: ", duplicates,
                             "; write them in the DeepSpeed configuration alone"));
}

// Merges the given options into a configuration. Throws ValueError if zero_optimization is missing,
// if a section is not a map, or if a value of the configuration differs from the option and is
// neither null nor "auto". Also throws the errors of check_config_fields().
void merge(DeepSpeedConfig& config, const std::array<SharedOption, 8>& options) {
    const Tree* const zero = config.find("zero_optimization");
    if (zero == nullptr || !zero->is_map())
        throw ValueError(str("DeepSpeedPlugin: ", config.source(),
                             ": zero_optimization: must be a section: ",
                             zero == nullptr ? "it is missing" : str(*zero)));
    for (const char* section : {"offload_optimizer", "offload_param"}) {
        const Tree* const offload = zero->find(section);
        if (offload != nullptr && !offload->is_null() && !offload->is_map())
            throw ValueError(str("DeepSpeedPlugin: ", config.source(), ": zero_optimization.",
                                 section, ": must be a section: ", *offload));
    }
    check_config_fields(config);
    std::string mismatches;
    for (const SharedOption& option : options) {
        const bool is_given = !option.value.is_null();
        const Tree* const found = config.find(option.name);
        if (found != nullptr && config.is_auto(option.name)) {
            config.set(option.name, is_given ? option.value : standard_of(option));
        } else if ((found == nullptr || found->is_null()) && is_given) {
            config.set(option.name, option.value);
        } else if (is_given) {
            std::vector<std::string> differs;
            config.fill_match(option.name, {{option.name, option.value}}, differs);
            if (!differs.empty())
                mismatches += str(mismatches.empty() ? "" : "; ",
                                  option.is_from_variable ? option.variable : option.field, " is ",
                                  to_json(option.value, -1), ", but ", option.name, " is ",
                                  printable(to_json(*found, -1)));
        }
    }
    if (!mismatches.empty())
        throw ValueError(str("DeepSpeedPlugin: options contradict ", config.source(), ": ",
                             mismatches, "; give them once, or write \"auto\" there"));
}

// Returns a configuration with the given options, for a plugin without hf_ds_config.
DeepSpeedConfig config_of(const std::array<SharedOption, 8>& options) {
    DeepSpeedConfig config(Tree{{"train_batch_size", "auto"},
                                {"train_micro_batch_size_per_gpu", "auto"},
                                {"gradient_accumulation_steps", "auto"},
                                {"gradient_clipping", "auto"},
                                {"zero_optimization", Tree::map()}});
    for (const SharedOption& option : options)
        config.set(option.name, option.value.is_null() ? standard_of(option) : option.value);
    return config;
}

// Reads and checks the values of a configuration.
class Values {
  public:
    explicit Values(const DeepSpeedConfig& config) : config_(config) {}

    [[noreturn]] void fail(const char* name, const std::string& wanted) const {
        const Tree value = config_.get_value(name);
        throw ValueError(str("DeepSpeedPlugin: ", config_.source(), ": ", name, ": must be ",
                             wanted, ": ", printable(to_json(value, -1))));
    }
    // The following functions return nullopt (device() and text(): "none") for a value that is
    // missing, null or "auto", and throw ValueError for a value that is invalid.
    std::optional<double> number(const char* name, double low, const char* wanted) const {
        const Tree* const value = find(name);
        if (value == nullptr) return std::nullopt;
        if (!value->is_number() || !std::isfinite(value->number()) || value->number() < low)
            fail(name, wanted);
        return value->number();
    }
    std::optional<int> integer(const char* name, int low, int high, const char* wanted) const {
        const auto value = number(name, low, wanted);
        if (value && (*value > high || *value != std::floor(*value))) fail(name, wanted);
        if (!value) return std::nullopt;
        return static_cast<int>(*value);
    }
    std::optional<bool> flag(const char* name) const {
        const Tree* const value = find(name);
        if (value == nullptr) return std::nullopt;
        if (!value->is_boolean()) fail(name, "true or false");
        return value->boolean();
    }
    std::string text(const char* name) const {
        const Tree* const value = find(name);
        if (value == nullptr) return "none";
        if (!value->is_string()) fail(name, "text");
        return value->string();
    }
    std::string device(const char* name) const {
        std::string device = text(name);
        if (device != "none" && device != "cpu" && device != "nvme")
            fail(name, "\"none\", \"cpu\" or \"nvme\"");
        return device;
    }

  private:
    const Tree* find(const char* name) const {
        const Tree* const value = config_.find(name);
        return value == nullptr || value->is_null() || config_.is_auto(name) ? nullptr : value;
    }
    const DeepSpeedConfig& config_;
};

// Copies the values of the configuration to the fields, and checks them.
void read_back(DeepSpeedPlugin& p) {
    const Values values(*p.hf_ds_config);
    p.gradient_accumulation_steps =
        values.integer(kAccumulation, 1, 1 << 30, "an integer from 1 to 2^30, or \"auto\"");
    p.gradient_clipping = values.number(kClipping, 0, "a number of at least 0, or \"auto\"");
    p.zero_stage = values.integer(kStage, 0, 3, "0, 1, 2 or 3").value_or(0);
    p.offload_optimizer_device = values.device(kOptimizerDevice);
    p.offload_optimizer_nvme_path = values.text(kOptimizerPath);
    p.offload_param_device = values.device(kParamDevice);
    p.offload_param_nvme_path = values.text(kParamPath);
    p.zero3_save_16bit_model = values.flag(kSave).value_or(false);
}

void check_offload(const DeepSpeedPlugin& p) {
    const auto check = [&](const char* option, const std::string& device, const std::string& path,
                           int least) {
        if (device == "none") return;
        if (p.zero_stage < least)
            throw ValueError(str("DeepSpeedPlugin: ", option, "_device: '", device,
                                 "' needs zero_stage ", least, least == 3 ? "" : " or 3",
                                 ": zero_stage is ", *p.zero_stage));
        if (device == "nvme" && path == "none")
            throw ValueError(str("DeepSpeedPlugin: ", option,
                                 "_nvme_path: must be the path of a folder on an NVMe disk if ",
                                 option, "_device is 'nvme': 'none'"));
    };
    const std::string& device = p.offload_optimizer_device;
    check("offload_optimizer", device, p.offload_optimizer_nvme_path, device == "nvme" ? 3 : 2);
    check("offload_param", p.offload_param_device, p.offload_param_nvme_path, 3);
}

void resolve_msamp(DeepSpeedPlugin& p) {
    if (!p.enable_msamp)
        p.enable_msamp = lower(text_variable("ACCELERATE_FP8_BACKEND").value_or("")) == "msamp";
    if (p.msamp_opt_level.empty())
        p.msamp_opt_level = text_variable("ACCELERATE_FP8_OPT_LEVEL").value_or("O1");
    if (!*p.enable_msamp || p.hf_ds_config->find("msamp") != nullptr) return;
    if (p.zero_stage == 3)
        throw NotImplementedError(
            "DeepSpeedPlugin: enable_msamp: MS-AMP does not support zero_stage 3; use stage 0, 1 "
            "or 2");
    if (p.msamp_opt_level != "O1" && p.msamp_opt_level != "O2")
        throw ValueError(str("DeepSpeedPlugin: msamp_opt_level: must be O1 or O2: '",
                             printable(p.msamp_opt_level), "'"));
    p.hf_ds_config->set("msamp", {{"enabled", true}, {"opt_level", p.msamp_opt_level}});
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin < list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        if (end > begin) parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

}  // namespace

void resolve(DeepSpeedPlugin& p) {
    if (!p.hf_ds_config)
        p.hf_ds_config = text_variable("ACCELERATE_DEEPSPEED_CONFIG_FILE").value_or("none");
    const auto options = given_options(p);
    if (p.hf_ds_config->empty())
        p.hf_ds_config = config_of(options);
    else
        merge(*p.hf_ds_config, options);
    read_back(p);
    check_offload(p);
    resolve_msamp(p);
    if (p.transformer_moe_cls_names.empty())
        p.transformer_moe_cls_names =
            split(text_variable("ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES").value_or(""));
    if (!p.zero3_init_flag) p.zero3_init_flag = flag_variable("ACCELERATE_DEEPSPEED_ZERO3_INIT");
    if (p.zero3_init_flag.value_or(false) && p.zero_stage != 3) {
        log(LogLevel::warning,
            "DeepSpeedPlugin: zero3_init_flag applies only to zero_stage 3; it "
            "is set to false: zero_stage is ",
            *p.zero_stage);
        p.zero3_init_flag = false;
    }
}

std::optional<double> gradient_clipping_of(const DeepSpeedPlugin& plugin) {
    if (!plugin.hf_ds_config) return std::nullopt;
    if (plugin.hf_ds_config->is_auto(kClipping)) return 1.0;
    const auto norm = Values(*plugin.hf_ds_config).number(kClipping, 0, "a number of at least 0");
    return norm.value_or(0) > 0 ? norm : std::nullopt;
}

namespace {

const DeepSpeedPlugin& plugin_named(const char* op, const AcceleratorOptions& options,
                                    std::string_view name) {
    std::string names;
    for (const auto& [known, plugin] : options.deepspeed_plugins) {
        if (known == name) return plugin;
        names += (names.empty() ? "" : ", ") + printable(known);
    }
    throw ValueError(str(op, ": there is no plugin ", in_quotes(name), "; deepspeed_plugins has ",
                         names.empty() ? "no names" : names));
}

}  // namespace

const DeepSpeedPlugin& get_deepspeed_plugin(const AcceleratorOptions& options,
                                            std::string_view name) {
    return plugin_named("get_deepspeed_plugin", options, name);
}

void select_deepspeed_plugin(AcceleratorOptions& options, std::string_view name) {
    options.deepspeed_plugin = plugin_named("select_deepspeed_plugin", options, name);
}

}  // namespace axle::accel
