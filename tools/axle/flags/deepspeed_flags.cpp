#include "tools/axle/flags/deepspeed_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace axle::launcher {
namespace {

constexpr const char* kPrefix = "launch: ";

std::optional<double> number_in(const std::string& text) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
    return number;
}

bool is_device(std::string_view name) { return name.ends_with("_device"); }
bool is_flag(std::string_view name) {
    return name == "zero3_init_flag" || name == "zero3_save_16bit_model";
}

// Returns the text of a value for the environment variable. Throws ValueError if the value is
// invalid.
std::string checked(const std::string& name, const std::string& text) {
    const std::string key = kPrefix + name;
    if (is_device(name)) {
        if (!is_one_of(lower(text), {"none", "cpu", "nvme"}))
            must_be(key, "none, cpu or nvme", text);
        return lower(text);
    }
    if (is_flag(name)) {
        if (!is_one_of(lower(text), {"true", "false"})) must_be(key, "true or false", text);
        return lower(text);
    }
    const auto number = number_in(text);
    if (name == "zero_stage" && !is_one_of(text, {"0", "1", "2", "3"}))
        must_be(key, "0, 1, 2 or 3", text);
    if (name == "gradient_clipping" && lower(text) != "none" && !(number && *number >= 0))
        must_be(key, "a number of at least 0, or none", text);
    if (name == "gradient_accumulation_steps" &&
        !(number && *number >= 1 && *number == std::floor(*number)) && text != "auto")
        must_be(key, "an integer of at least 1, or auto", text);
    if (name == "deepspeed_multinode_launcher" && !is_one_of(text, multinode_launchers()))
        must_be(key, "one of " + joined(multinode_launchers()), text);
    return text;
}

void refuse_unknown_keys(const Tree& section) {
    if (!section.is_map()) return;
    std::vector<std::string> known = {"gradient_accumulation_steps"};
    for (const DeepSpeedField& field : deepspeed_fields()) known.emplace_back(field.name);
    for (const auto& [key, value] : section.entries())
        check_key("deepspeed_config", key, key, known);
}

}  // namespace

const std::vector<std::string>& multinode_launchers() {
    static const std::vector<std::string> names = {"pdsh",  "standard", "openmpi", "mvapich",
                                                   "mpich", "nossh",    "slurm"};
    return names;
}

const std::vector<DeepSpeedField>& deepspeed_fields() {
    static const std::vector<DeepSpeedField> fields = {
        {"deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE",
         "DeepSpeed's configuration, a JSON file"},
        {"zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE",
         "0: nothing is sharded; 1: optimizer states; 2: also gradients; 3: also parameters; "
         "default: 2"},
        {"offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
         "Where optimizer states are kept: none, cpu or nvme"},
        {"offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
         "Where parameters are kept in stage 3: none, cpu or nvme"},
        {"offload_optimizer_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
         "Folder for optimizer states on nvme"},
        {"offload_param_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
         "Folder for parameters on nvme"},
        {"gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING",
         "Norm to which step() clips gradients; default: 1.0"},
        {"zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT",
         "true or false: construct models in shards, in stage 3"},
        {"zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
         "true or false: save weights of stage 3 in the dtype of mixed precision, not in f32"},
        {"deepspeed_moe_layer_cls_names", "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
         "Comma-separated types of modules that stage 3 gathers as a whole"},
        {"deepspeed_multinode_launcher", "",
         "How processes on several machines are started: pdsh, openmpi, mvapich, mpich or slurm "
         "start them all from this machine; with standard and nossh, run axle launch on each "
         "machine; default: pdsh with a hostfile, else standard"},
        {"deepspeed_hostfile", "", "File with a line such as `worker-0 slots=4` for each machine"},
        {"deepspeed_inclusion_filter", "",
         "Machines and slots of the hostfile to use, such as worker-0@worker-1:0,2"},
        {"deepspeed_exclusion_filter", "",
         "Machines and slots of the hostfile not to use, such as worker-1:0"},
    };
    return fields;
}

std::optional<std::string> deepspeed_value(const FlagValues& flags, const Tree& deepspeed_config,
                                           const std::string& name) {
    const auto flag = flags.find(name);
    const auto text = flag != flags.end() && flag->second
                          ? flag->second
                          : text_of(deepspeed_config, name, kPrefix);
    if (!text) return std::nullopt;
    return checked(name, *text);
}

std::map<std::string, std::string> deepspeed_variables(const FlagValues& flags,
                                                       const Tree& deepspeed_config,
                                                       bool has_precision) {
    refuse_unknown_keys(deepspeed_config);
    std::map<std::string, std::string> variables = {{"ACCELERATE_USE_DEEPSPEED", "true"}};
    for (const DeepSpeedField& field : deepspeed_fields()) {
        const auto value = deepspeed_value(flags, deepspeed_config, field.name);
        if (value && *field.variable != '\0' && !value->empty()) variables[field.variable] = *value;
    }
    const auto steps = deepspeed_value({}, deepspeed_config, "gradient_accumulation_steps");
    if (steps) variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = *steps;
    std::string fields;
    if (deepspeed_config.is_map())
        for (const auto& [key, value] : deepspeed_config.entries())
            fields += (fields.empty() ? "" : ",") + lower(key);
    if (has_precision) fields += fields.empty() ? "mixed_precision" : ",mixed_precision";
    if (!fields.empty()) variables["ACCELERATE_CONFIG_DS_FIELDS"] = fields;
    return variables;
}

Tree deepspeed_config_of(const FlagValues& flags) {
    Tree section = Tree::map();
    for (const auto& [name, given] : flags) {
        if (!given) continue;
        const std::string text = checked(name, *given);
        Tree value = text;
        if (name == "zero_stage")
            value = static_cast<std::int64_t>(text[0] - '0');
        else if (is_flag(name))
            value = text == "true";
        else if (name == "gradient_clipping" && number_in(text))
            value = *number_in(text);
        section.set(name, value);
    }
    return section;
}

}  // namespace axle::launcher
