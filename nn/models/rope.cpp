#include "nn/models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/models/rope_fields.h"

namespace axle::nn {

void RopeScaling::validate(const char* who) const {
    if (type != "linear" && type != "dynamic" && type != "llama3")
        throw ValueError(
            str(who, ": rope_scaling: rope_type must be linear, dynamic or llama3: '", type, "'"));
    if (!(factor >= 1 && std::isfinite(factor)))
        throw ValueError(
            str(who, ": rope_scaling: factor must be at least 1 and finite: ", factor));
    if (type != "llama3") return;
    if (!(low_freq_factor > 0 && high_freq_factor > low_freq_factor &&
          std::isfinite(high_freq_factor)))
        throw ValueError(str(who, ": rope_scaling: low_freq_factor must be positive and below ",
                             "high_freq_factor, which must be finite: ", low_freq_factor, ", ",
                             high_freq_factor));
    check_size(who, "rope_scaling: original_max_position_embeddings",
               original_max_position_embeddings);
}

std::vector<double> RopeScaling::frequencies(double base, std::int64_t head_size,
                                             std::int64_t length,
                                             std::int64_t max_position_embeddings) const {
    const auto size = static_cast<double>(head_size);
    if (type == "dynamic" && length > max_position_embeddings && head_size > 2) {
        const double ratio =
            static_cast<double>(length) / static_cast<double>(max_position_embeddings);
        base *= std::pow(factor * ratio - (factor - 1), size / (size - 2));
    }
    const auto original = static_cast<double>(original_max_position_embeddings);
    std::vector<double> result;
    for (std::int64_t i = 0; i < head_size; i += 2) {
        const double frequency = std::pow(base, -static_cast<double>(i) / size);
        if (type == "dynamic") {
            result.push_back(frequency);
        } else if (type == "linear") {
            result.push_back(frequency / factor);
        } else {
            const double wavelengths = original * frequency / (2 * std::numbers::pi);
            const double kept = std::clamp(
                (wavelengths - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0);
            result.push_back((1 - kept) * frequency / factor + kept * frequency);
        }
    }
    return result;
}

// --- config.json

namespace {

double rope_number(const ConfigFields& fields, const char* field, const Tree& rope,
                   const char* name, double value) {
    const Tree* found = rope.find(name);
    if (found == nullptr || found->is_null()) return value;
    if (!found->is_number()) fields.fail(field, str(name, ": must be a number: ", shown(*found)));
    return found->number();
}

std::int64_t rope_integer(const ConfigFields& fields, const char* field, const Tree& rope,
                          const char* name, std::int64_t value) {
    const Tree* found = rope.find(name);
    if (found == nullptr || found->is_null()) return value;
    if (!found->is_integer())
        fields.fail(field, str(name, ": must be an integer: ", shown(*found)));
    return found->integer();
}

}  // namespace

void read_rope(const ConfigFields& fields, double& theta, std::optional<RopeScaling>& scaling) {
    fields.read("rope_theta", theta);
    scaling.reset();
    for (const char* field : {"rope_scaling", "rope_parameters"}) {
        const Tree* rope = fields.find(field);
        if (rope == nullptr) continue;
        if (!rope->is_map()) fields.fail(field, str("must be an object: ", shown(*rope)));
        theta = rope_number(fields, field, *rope, "rope_theta", theta);
        for (const char* key : {"type", "rope_type"}) {  // the second key takes precedence
            const Tree* type = rope->find(key);
            if (type == nullptr) continue;
            const bool is_known =
                type->is_string() && (type->string() == "default" || type->string() == "linear" ||
                                      type->string() == "dynamic" || type->string() == "llama3");
            if (!is_known)
                fields.fail(field, str(key, ": must be default, linear, dynamic or llama3, the ",
                                       "only supported values: ", shown(*type)));
            scaling.reset();
            if (type->string() != "default") scaling = RopeScaling{.type = type->string()};
        }
        if (!scaling) continue;
        RopeScaling& own = *scaling;
        own.factor = rope_number(fields, field, *rope, "factor", own.factor);
        own.low_freq_factor =
            rope_number(fields, field, *rope, "low_freq_factor", own.low_freq_factor);
        own.high_freq_factor =
            rope_number(fields, field, *rope, "high_freq_factor", own.high_freq_factor);
        own.original_max_position_embeddings =
            rope_integer(fields, field, *rope, "original_max_position_embeddings",
                         own.original_max_position_embeddings);
    }
}

void write_rope(Tree& fields, double theta, const std::optional<RopeScaling>& scaling) {
    Tree rope{{"rope_type", scaling ? scaling->type : "default"}};
    if (scaling) rope.entries().push_back({"factor", scaling->factor});
    if (scaling && scaling->type == "llama3") {
        rope.entries().push_back({"low_freq_factor", scaling->low_freq_factor});
        rope.entries().push_back({"high_freq_factor", scaling->high_freq_factor});
        rope.entries().push_back(
            {"original_max_position_embeddings", scaling->original_max_position_embeddings});
    }
    fields.entries().push_back({"rope_theta", theta});
    if (scaling) fields.entries().push_back({"rope_scaling", rope});
    rope.entries().push_back({"rope_theta", theta});
    fields.entries().push_back({"rope_parameters", rope});
}

}  // namespace axle::nn
