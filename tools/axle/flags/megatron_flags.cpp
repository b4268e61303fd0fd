#include "tools/axle/flags/megatron_flags.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "tools/axle/flags/foreign_flags.h"

namespace axle::launcher {
namespace {

constexpr std::string_view kPrefix = "megatron_lm_";

// Returns megatron_lm_config with the prefix added to keys that do not have it. Throws ValueError
// if a key is unknown.
Tree section_of(const Tree& megatron_lm_config) {
    Tree section = Tree::map();
    if (!megatron_lm_config.is_map()) return section;
    std::vector<std::string> known;
    for (const MegatronField& field : megatron_fields()) known.push_back(str(kPrefix, field.name));
    for (const ForeignFlag& flag : flags_without_effect())
        if (std::string_view(flag.name).starts_with(kPrefix)) known.emplace_back(flag.name);
    for (const auto& [given, value] : megatron_lm_config.entries()) {
        const std::string key = given.starts_with(kPrefix) ? given : str(kPrefix, given);
        check_key("megatron_lm_config", key, given, known);
        section.set(key, value);
    }
    return section;
}

template <class T>
bool is_number(const std::string& text, T least) {
    T number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end && number >= least && std::isfinite(number);
}

void check(const std::string& name, const std::string& text) {
    const std::string key = str(kPrefix, name);
    if (name == "gradient_clipping") {
        if (!is_number(text, 0.0)) must_be(key, "a number of at least 0", text);
    } else if (name == "recompute_granularity") {
        if (!is_one_of(text, {"full", "selective"})) must_be(key, "full or selective", text);
    } else if (name == "recompute_method") {
        if (!is_one_of(text, {"uniform", "block"})) must_be(key, "uniform or block", text);
    } else if (name == "sequence_parallelism" || name == "recompute_activations" ||
               name == "use_distributed_optimizer" || name == "calculate_per_token_loss" ||
               name == "eod_mask_loss") {
        if (!is_one_of(lower(text), {"true", "false", "1", "0", "yes", "no"}))
            must_be(key, "true or false", text);
    } else if (!is_number(text, 1)) {
        must_be(key, "an integer of at least 1", text);
    }
}

}  // namespace

const std::vector<MegatronField>& megatron_fields() {
    static const std::vector<MegatronField> fields = {
        {"tp_degree", "1", "Processes that divide the layers (tensor parallelism)"},
        {"pp_degree", "1", "Stages of a pipeline"},
        {"num_micro_batches", "", "Micro-batches of a step; default: 1"},
        {"gradient_clipping", "1.0", "Largest norm of the gradients of all stages; 0: no limit"},
        {"sequence_parallelism", "", "Whether norms and dropout work on parts of the sequence"},
        {"use_distributed_optimizer", "", "Whether replicas divide the states of optimizers"},
        {"recompute_activations", "", "Whether backward computes activations again"},
        {"recompute_granularity", "", "full"},
        {"recompute_method", "", "uniform or block: which pieces of a stage are recomputed"},
        {"recompute_num_layers", "", "Pieces that are recomputed together, or in each stage"},
        {"decoder_last_pipeline_num_layers", "", "Layers of the last stage"},
        {"context_parallel_size", "", "1; other values are not implemented"},
        {"expert_model_parallel_size", "", "Replicas that divide the experts of a mixture"},
        {"calculate_per_token_loss", "", "Whether losses are means over labels"},
        {"eod_mask_loss", "", "Whether labels after the end of a text have no loss"},
    };
    return fields;
}

std::map<std::string, std::string> megatron_variables(const FlagValues& flags,
                                                      const Tree& megatron_lm_config,
                                                      std::vector<std::string>& without_effect) {
    const Tree section = section_of(megatron_lm_config);
    std::map<std::string, std::string> variables = {{"ACCELERATE_USE_MEGATRON_LM", "true"}};
    for (const MegatronField& field : megatron_fields()) {
        const auto flag = flags.find(field.name);
        const auto given = flag != flags.end() && flag->second
                               ? flag->second
                               : text_of(section, str(kPrefix, field.name));
        if (given) check(field.name, *given);
        const std::string value = given.value_or(field.standard);
        if (!value.empty()) variables["MEGATRON_LM_" + upper(field.name)] = value;
    }
    for (const ForeignFlag& flag : flags_without_effect())
        if (section.contains(flag.name)) without_effect.emplace_back(flag.name);
    return variables;
}

}  // namespace axle::launcher
