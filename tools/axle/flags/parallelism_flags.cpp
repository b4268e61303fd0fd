#include "tools/axle/flags/parallelism_flags.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"
#include "tools/axle/config_values.h"

namespace axle::launcher {
namespace {

constexpr std::string_view kPrefix = "parallelism_config_";

std::optional<std::string> text_of(const std::string& key, const Tree& value) {
    if (value.is_null()) return std::nullopt;
    if (value.is_string()) return value.string();
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_boolean()) return value.boolean() ? "true" : "false";
    throw ValueError(str("parallelism_config: ", key,
                         " must be text, an integer, true or false: ", printable(str(value))));
}

// Returns the values of the section by the name of the field. A key of the section may be the name
// with or without the prefix. Throws ValueError if a key is unknown.
ParallelismFlags values_in(const Tree& section) {
    ParallelismFlags values;
    if (!section.is_map()) return values;
    std::vector<std::string> known;
    for (const ParallelismField& field : parallelism_fields()) known.emplace_back(field.name);
    for (const auto& [given, value] : section.entries()) {
        const std::string name = given.starts_with(kPrefix) ? given.substr(kPrefix.size()) : given;
        if (std::ranges::find(known, name) == known.end()) {
            const std::string near = nearest(name, known);
            throw ValueError(str("parallelism_config: unknown key ", in_quotes(given),
                                 near.empty() ? "; expected one of " + joined(known)
                                              : "; did you mean " + near + "?"));
        }
        values[name] = text_of(given, value);
    }
    return values;
}

void check_number(const std::string& name, const std::string& text) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || number < 1)
        throw ValueError(
            str(kPrefix, name, " must be an integer from 1 to 2^31 - 1: ", in_quotes(text)));
}

}  // namespace

const std::vector<ParallelismField>& parallelism_fields() {
    static const std::vector<ParallelismField> fields = {
        {"dp_replicate_size", "1", "Replicas of the model"},
        {"dp_shard_size", "1", "Processes that parameters are sharded over"},
        {"tp_size", "1", "Processes of tensor parallelism"},
        {"cp_size", "1", "Processes of context parallelism, which needs FSDP version 2"},
        {"cp_backend", "torch", "torch"},
        {"cp_comm_strategy", "allgather", "allgather or alltoall: how keys and values are sent"},
        {"sp_size", "1", "Processes of sequence parallelism (Ulysses)"},
        {"sp_backend", "deepspeed", "deepspeed"},
        {"sp_seq_length", "", "Length of all sequences of Ulysses"},
        {"sp_seq_length_is_variable", "true", "Whether the length of batches of Ulysses varies"},
        {"sp_attn_implementation", "", "No effect: Axle has one implementation of attention"},
        // Options that Accelerate does not have.
        {"pp_size", "", "Stages of a pipeline"},
        {"ep_size", "", "Replicas that divide the experts of a mixture"},
    };
    return fields;
}

std::map<std::string, std::string> parallelism_variables(const ParallelismFlags& flags,
                                                         const Tree& parallelism_config) {
    const ParallelismFlags section = values_in(parallelism_config);
    std::map<std::string, std::string> variables = {{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"}};
    for (const ParallelismField& field : parallelism_fields()) {
        std::string value = field.standard;
        for (const ParallelismFlags* const source : {&section, &flags})
            if (const auto found = source->find(field.name); found != source->end())
                value = found->second.value_or(value);
        if (value.empty()) continue;
        const std::string_view name = field.name;
        if (name.ends_with("_size") || name == "sp_seq_length") check_number(field.name, value);
        variables["PARALLELISM_CONFIG_" + upper(field.name)] = value;
    }
    return variables;
}

}  // namespace axle::launcher
