#include "tools/axle/flags/fsdp_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "accel/config/fsdp_plugin.h"
#include "core/system/log.h"

namespace axle::launcher {
namespace {

bool is_yes(const std::string& text) {
    return is_one_of(lower(text), {"1", "true", "t", "yes", "y", "on"});
}

bool is_flag(const std::string& text) {
    return is_yes(text) || is_one_of(lower(text), {"0", "false", "f", "no", "n", "off"});
}

// Returns the name that equals `text`, ignoring case. With has_numbers, `text` can also be the
// number of the name, from 1. Returns "" if there is no such name.
std::string name_in(const std::string& text, const std::vector<std::string>& names,
                    bool has_numbers = true) {
    for (std::size_t i = 0; i < names.size(); ++i)
        if (upper(text) == names[i] || (has_numbers && text == std::to_string(i + 1)))
            return names[i];
    return {};
}

void check_name(const std::string& key, const std::string& text,
                const std::vector<std::string>& names, bool has_numbers = true) {
    if (name_in(text, names, has_numbers).empty()) must_be(key, "one of " + joined(names), text);
}

// Throws ValueError if the value of an option is invalid.
void check(const std::string& name, const std::string& text, const std::string& version) {
    const std::string key = "fsdp_" + name;
    if (name == "version") {
        if (text != "1" && text != "2") must_be(key, "1 or 2", text);
    } else if (name == "sharding_strategy") {
        check_name(key, text, accel::fsdp_strategies());
    } else if (name == "reshard_after_forward") {
        if (version == "1")
            check_name(key, text, accel::fsdp_strategies());
        else if (!is_flag(text))
            must_be(key, "true or false for version 2 (axle to-fsdp2 converts configurations)",
                    text);
    } else if (name == "auto_wrap_policy") {
        check_name(key, text, accel::fsdp_auto_wrap_policies(), false);
    } else if (name == "backward_prefetch") {
        check_name(key, text, accel::fsdp_backward_prefetches());
    } else if (name == "state_dict_type") {
        check_name(key, text, accel::fsdp_state_dict_types());
    } else if (name == "min_num_params") {
        std::int64_t number = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error != std::errc() || stop != end || number < 0)
            must_be(key, "an integer of at least 0", text);
    } else if (name != "transformer_layer_cls_to_wrap" && name != "ignored_modules") {
        if (!is_flag(text)) must_be(key, "true or false", text);
    }
}

bool keeps_case(std::string_view name) {
    return name == "transformer_layer_cls_to_wrap" || name == "ignored_modules" ||
           name == "sharding_strategy" || name == "auto_wrap_policy" ||
           name == "backward_prefetch" || name == "state_dict_type";
}

}  // namespace

const std::vector<FsdpField>& fsdp_fields() {
    static const std::vector<FsdpField> fields = {
        {"version", "FSDP_VERSION", "1", "1 or 2"},
        {"sharding_strategy", "FSDP_SHARDING_STRATEGY", "FULL_SHARD",
         "Version 1, deprecated: use --fsdp_reshard_after_forward"},
        {"reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", "true",
         "Version 2: true or false. Version 1: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD "
         "or HYBRID_SHARD_ZERO2"},
        {"offload_params", "FSDP_OFFLOAD_PARAMS", "false",
         "Keep parameters, gradients and optimizer states in host memory"},
        {"auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", "",
         "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP"},
        {"transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", "",
         "Comma-separated types of the units of TRANSFORMER_BASED_WRAP; default: the types "
         "that the model names"},
        {"min_num_params", "FSDP_MIN_NUM_PARAMS", "100000000",
         "Number of parameters of the units of SIZE_BASED_WRAP"},
        {"backward_prefetch", "FSDP_BACKWARD_PREFETCH", "",
         "Version 1: BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH"},
        {"forward_prefetch", "FSDP_FORWARD_PREFETCH", "false",
         "Version 1: gather the next unit during forward"},
        {"state_dict_type", "FSDP_STATE_DICT_TYPE", "",
         "FULL_STATE_DICT, SHARDED_STATE_DICT or, for version 1, LOCAL_STATE_DICT"},
        {"use_orig_params", "FSDP_USE_ORIG_PARAMS", "true",
         "No effect: parameters always keep their shapes"},
        {"cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", "true",
         "Only rank 0 has the values of the model"},
        {"sync_module_states", "FSDP_SYNC_MODULE_STATES", "true",
         "Version 1: all processes start with the values of rank 0"},
        {"activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", "false",
         "Recompute activations of units in backward"},
        {"activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "false",
         "Version 2: keep the inputs of these units in host memory"},
        {"ignored_modules", "FSDP_IGNORED_MODULES", "",
         "Regular expression for the names of modules that are not sharded"},
    };
    return fields;
}

Tree fsdp_section(const Tree& fsdp_config) {
    Tree section = Tree::map();
    if (!fsdp_config.is_map()) return section;
    std::vector<std::string> known;
    for (const FsdpField& field : fsdp_fields()) known.push_back(str("fsdp_", field.name));
    for (const auto& [given, value] : fsdp_config.entries()) {
        const std::string key = given.starts_with("fsdp") ? given : "fsdp_" + given;
        check_key("fsdp_config", key, given, known);
        section.set(key, value);
    }
    return section;
}

std::map<std::string, std::string> fsdp_variables(const FlagValues& flags,
                                                  const Tree& fsdp_config) {
    const Tree section = fsdp_section(fsdp_config);
    const auto given = [&](const std::string& name) {
        const auto flag = flags.find(name);
        return flag != flags.end() && flag->second ? flag->second
                                                   : text_of(section, "fsdp_" + name);
    };
    const std::string version = given("version").value_or("1");
    std::map<std::string, std::string> variables = {{"ACCELERATE_USE_FSDP", "true"}};
    for (const FsdpField& field : fsdp_fields()) {
        const auto text = given(field.name);
        if (text) check(field.name, *text, version);
        const std::string value = text.value_or(field.standard);
        if (!value.empty())
            variables[field.variable] = keeps_case(field.name) ? value : lower(value);
    }
    const auto loading = given("cpu_ram_efficient_loading");
    if (version == "1" && loading && is_yes(*loading) &&
        !is_yes(variables["FSDP_SYNC_MODULE_STATES"]))
        throw ValueError(
            "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states to be true: it is false; "
            "set it to true");
    return variables;
}

Tree fsdp_config_of(FlagValues flags) {
    auto& version = flags["version"];
    if (!version) version = "2";
    fsdp_variables(flags, {});  // checks the values
    Tree section = Tree::map();
    for (const auto& [name, text] : flags) {
        if (!text) continue;
        const bool is_number = name == "version" || name == "min_num_params";
        Tree value = *text;
        if (is_number)
            value = static_cast<std::int64_t>(std::stoll(*text));
        else if (!keeps_case(name) && is_flag(*text) &&
                 (name != "reshard_after_forward" || version == "2"))
            value = is_yes(*text);
        section.set("fsdp_" + name, value);
    }
    return section;
}

Tree to_fsdp2(const Tree& fsdp_config) {
    const Tree section = fsdp_section(fsdp_config);
    const auto names_strategy = [&](const char* key) -> std::string {
        const auto text = text_of(section, key);
        if (!text || (key == std::string_view("fsdp_reshard_after_forward") && is_flag(*text) &&
                      text->size() > 1))
            return {};
        const std::string name = name_in(*text, accel::fsdp_strategies());
        if (name.empty())
            throw ValueError(str("to-fsdp2: ", key, " must be one of ",
                                 joined(accel::fsdp_strategies()), ": ", in_quotes(*text)));
        return name;
    };
    // In version 1 of FSDP, either key can contain the strategy, and FULL_SHARD is the default.
    const std::string old = names_strategy("fsdp_sharding_strategy"),
                      name = names_strategy("fsdp_reshard_after_forward");
    if (!old.empty() && !name.empty() && old != "FULL_SHARD" && old != name)
        throw ValueError(str(
            "to-fsdp2: fsdp_sharding_strategy and fsdp_reshard_after_forward must name the same "
            "strategy: ",
            old, ", ", name, "; remove one of them"));
    const std::string strategy = name.empty() ? old : name;
    if (strategy == "NO_SHARD" || strategy.starts_with("HYBRID"))
        log(LogLevel::warning, "to-fsdp2: ", strategy, " has no equivalent in version 2 of FSDP, ",
            strategy == "NO_SHARD" ? "which always shards parameters"
                                   : "which shards over all processes unless parallelism_config "
                                     "sets dp_replicate_size");
    Tree result = Tree::map();
    for (const auto& [key, value] : section.entries()) {
        if (key == "fsdp_sharding_strategy" || key == "fsdp_reshard_after_forward") continue;
        if (key == "fsdp_backward_prefetch" || key == "fsdp_forward_prefetch" ||
            key == "fsdp_sync_module_states" || key == "fsdp_use_orig_params") {
            log(LogLevel::warning, "to-fsdp2: removed ", key, ", which version 2 does not have");
            continue;
        }
        if (key == "fsdp_state_dict_type" &&
            name_in(text_of(section, key).value_or(""), accel::fsdp_state_dict_types()) ==
                "LOCAL_STATE_DICT") {
            log(LogLevel::warning, "to-fsdp2: ", key,
                ": replaced LOCAL_STATE_DICT, which version 2 does not have, by "
                "SHARDED_STATE_DICT");
            result.set(key, "SHARDED_STATE_DICT");
            continue;
        }
        result.set(key, value);
    }
    if (!strategy.empty())
        result.set("fsdp_reshard_after_forward",
                   strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD");
    result.set("fsdp_version", 2);
    return result;
}

}  // namespace axle::launcher
