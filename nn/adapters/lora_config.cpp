// Reads and writes adapter_config.json.
#include <cmath>

#include "core/text/pattern.h"
#include "nn/adapters/lora.h"
#include "nn/models/pretrained.h"

namespace axle::nn {
namespace {

constexpr const char* kWho = "LoraConfig";
constexpr const char* kAllLinear = "all-linear";
constexpr std::size_t kMaxPatterns = 10000;  // each of them is matched with the name of each layer

Tree names_tree(const std::vector<std::string>& names) {
    return Tree::list(Tree::List(names.begin(), names.end()));
}

// Reads a list of strings. Leaves `names` unchanged if the entry is absent or null.
void read_names(const ConfigFields& fields, const char* name, std::vector<std::string>& names) {
    const Tree* field = fields.find(name);
    if (field == nullptr) return;
    if (!field->is_list()) fields.fail(name, str("must be a list of strings: ", shown(*field)));
    names.clear();
    for (const Tree& one : field->elements()) {
        if (!one.is_string()) fields.fail(name, str("must contain only strings: ", shown(one)));
        names.push_back(one.string());
    }
}

// Reads the selection of layers: a list of names, "all-linear" or a regular expression.
void read_targets(const ConfigFields& fields, LoraConfig& config) {
    constexpr const char* kName = "target_modules";
    const Tree* field = fields.find(kName);
    if (field == nullptr)
        fields.fail(kName, "must be a list of names of layers, or a string: it is missing");
    if (!field->is_string()) return read_names(fields, kName, config.target_modules);
    if (field->string() == kAllLinear)
        config.target_modules = {kAllLinear};
    else
        config.target_pattern = field->string();
}

// Reads a map from patterns to numbers.
template <class Value>
void read_patterns(const ConfigFields& fields, const char* name,
                   std::vector<std::pair<std::string, Value>>& patterns) {
    const Tree* field = fields.find(name);
    if (field == nullptr) return;
    if (!field->is_map()) fields.fail(name, str("must be an object: ", shown(*field)));
    if (field->size() > kMaxPatterns)
        fields.fail(name, str("must have at most ", kMaxPatterns, " patterns: ", field->size()));
    for (const auto& [pattern, value] : field->entries()) {
        const bool fits = std::is_integral_v<Value> ? value.is_integer() : value.is_number();
        if (!fits)
            fields.fail(
                name, str("the value of ", in_quotes(pattern), " must be ",
                          std::is_integral_v<Value> ? "an integer: " : "a number: ", shown(value)));
        if constexpr (std::is_integral_v<Value>)
            patterns.emplace_back(pattern, value.integer());
        else
            patterns.emplace_back(pattern, value.number());
    }
}

// Returns an integer if the number is one, because PEFT writes alpha as an integer.
Tree number_tree(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e15)
        return static_cast<std::int64_t>(value);
    return value;
}
Tree number_tree(std::int64_t value) { return value; }

template <class Value>
Tree patterns_tree(const std::vector<std::pair<std::string, Value>>& patterns) {
    Tree map = Tree::map();
    for (const auto& [pattern, value] : patterns) map.set(pattern, number_tree(value));
    return map;
}

// Throws ValueError if an entry that changes results has a value that Axle does not support.
void require_plain_lora(const ConfigFields& fields) {
    fields.require("peft_type", "LORA");
    for (const char* name : {"use_dora", "use_qalora", "lora_bias"}) fields.require(name, false);
    for (const char* name :
         {"layers_to_transform", "layers_pattern", "layer_replication", "target_parameters",
          "trainable_token_indices", "alora_invocation_tokens", "use_bdlora", "arrow_config",
          "corda_config", "kasa_config", "lora_ga_config", "monteclora_config", "velora_config",
          "megatron_config"})
        if (const Tree* field = fields.find(name); field != nullptr)
            fields.fail(name, str("must be null, the only supported value: ", shown(*field)));
}

void read_init(const ConfigFields& fields, LoraConfig& config) {
    constexpr const char* kName = "init_lora_weights";
    const Tree* field = fields.find(kName);
    // A trained adapter does not depend on how it was initialized, unless the weights of the base
    // model were changed too.
    if (field == nullptr || field->is_boolean()) return;
    const std::string name = field->is_string() ? field->string() : "";
    if (name == "eva" || name == "orthogonal") return;
    if (name != "gaussian")
        fields.fail(kName, str("must be true, false, gaussian, eva or orthogonal, because other "
                               "values change the weights of the base model: ",
                               shown(*field)));
    config.init_lora_weights = LoraConfig::Init::gaussian;
}

constexpr std::pair<const char*, LoraConfig::Bias> kBiases[] = {
    {"none", LoraConfig::Bias::none},
    {"all", LoraConfig::Bias::all},
    {"lora_only", LoraConfig::Bias::lora_only},
};

void read_bias(const ConfigFields& fields, LoraConfig& config) {
    std::string value = "none";
    fields.read("bias", value);
    for (const auto& [name, bias] : kBiases) {
        if (value != name) continue;
        config.bias = bias;
        return;
    }
    fields.fail("bias", str("must be none, all or lora_only: ", in_quotes(value)));
}

void check_pattern(const char* what, const std::string& expression) {
    try {
        const Pattern compiled(expression);
    } catch (const ValueError& error) {
        throw ValueError(str(kWho, ": ", what, " must be a regular expression: ",
                             in_quotes(expression), ": ", error.what()));
    }
}

}  // namespace

std::string LoraConfig::to_json() const {
    Tree targets = names_tree(target_modules);
    if (!target_pattern.empty()) targets = target_pattern;
    if (target_modules == std::vector<std::string>{kAllLinear}) targets = kAllLinear;
    const auto or_null = [](const auto& value, const Tree& tree) {
        return value.empty() ? Tree() : tree;
    };
    const Tree fields{
        {"alpha_pattern", patterns_tree(alpha_pattern)},
        {"base_model_name_or_path", or_null(base_model_name_or_path, base_model_name_or_path)},
        {"bias", kBiases[static_cast<int>(bias)].first},
        {"exclude_modules", or_null(exclude_modules, names_tree(exclude_modules))},
        {"inference_mode", true},
        {"init_lora_weights", init_lora_weights == Init::gaussian ? Tree("gaussian") : Tree(true)},
        {"lora_alpha", number_tree(lora_alpha)},
        {"lora_dropout", lora_dropout},
        {"modules_to_save", or_null(modules_to_save, names_tree(modules_to_save))},
        {"peft_type", "LORA"},
        {"r", r},
        {"rank_pattern", patterns_tree(rank_pattern)},
        {"target_modules", targets},
        {"task_type", or_null(task_type, task_type)},
        {"use_rslora", use_rslora},
    };
    return axle::to_json(fields);
}

LoraConfig LoraConfig::from_json(const std::string& text) {
    const ConfigFields fields(kWho, text);
    require_plain_lora(fields);
    LoraConfig config;
    fields.read("r", config.r);
    fields.read("lora_alpha", config.lora_alpha);
    fields.read("lora_dropout", config.lora_dropout);
    fields.read("use_rslora", config.use_rslora);
    read_targets(fields, config);
    read_names(fields, "exclude_modules", config.exclude_modules);
    read_names(fields, "modules_to_save", config.modules_to_save);
    read_patterns(fields, "rank_pattern", config.rank_pattern);
    read_patterns(fields, "alpha_pattern", config.alpha_pattern);
    read_init(fields, config);
    read_bias(fields, config);
    fields.read("base_model_name_or_path", config.base_model_name_or_path);
    fields.read("task_type", config.task_type);
    config.validate();
    return config;
}

void LoraConfig::validate() const {
    check_size(kWho, "r", r);
    check_positive(kWho, "lora_alpha", lora_alpha);
    check_probability(kWho, "lora_dropout", lora_dropout);
    if (target_modules.empty() == target_pattern.empty())
        throw ValueError(str(kWho,
                             ": exactly one of target_modules and target_pattern must be "
                             "given: target_modules has ",
                             target_modules.size(), " elements, target_pattern is ",
                             in_quotes(target_pattern)));
    if (!target_pattern.empty())
        check_pattern("target_pattern (target_modules of the file)", target_pattern);
    for (const auto& [pattern, rank] : rank_pattern) {
        check_pattern("rank_pattern", pattern);
        check_size(kWho, "rank_pattern", rank);
    }
    for (const auto& [pattern, alpha] : alpha_pattern) {
        check_pattern("alpha_pattern", pattern);
        check_positive(kWho, "alpha_pattern", alpha);
    }
}

}  // namespace axle::nn
