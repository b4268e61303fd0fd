// Private to accel: reads the sections "optimizer" and "scheduler" of DeepSpeed configurations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accel/config/deepspeed_config.h"
#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::accel {

// A section with a "type" and a map "params". Error messages contain the source of the
// configuration and the whole name of the option.
class DeepSpeedSection {
  public:
    // Throws ValueError if the section or its type is missing, or if the section, its type or
    // `params` is invalid.
    DeepSpeedSection(const DeepSpeedConfig& config, const char* section)
        : source_(config.source()), section_(section) {
        const Tree* const found = config.find(section);
        if (found == nullptr || !found->is_map())
            throw ValueError(
                str("DeepSpeedConfig: ", source_, ": the section ", section,
                    found == nullptr ? " is missing; add it" : " is not a map; correct it",
                    ", or pass an object instead of a placeholder"));
        const Tree* const type = found->find("type");
        if (type == nullptr || !type->is_string())
            throw ValueError(str("DeepSpeedConfig: ", source_, ": ", section,
                                 ".type must be a name: ",
                                 type == nullptr ? "missing" : printable(to_json(*type, -1))));
        type_ = type->string();
        const Tree* const params = found->find("params");
        if (params == nullptr || params->is_null()) return;
        if (!params->is_map()) fail("", "a map of options", *params);
        params_ = *params;
    }

    const std::string& type() const { return type_; }
    bool has(const char* key) const { return find(key) != nullptr; }

    // Throws ValueError if `params` has an option that is not in `names`.
    void allow_only(std::initializer_list<const char*> names) const {
        for (const auto& [key, value] : params_.entries()) {
            if (std::find(names.begin(), names.end(), key) != names.end()) continue;
            std::string known;
            for (const char* name : names) known += str(known.empty() ? "" : ", ", name);
            throw ValueError(str("DeepSpeedConfig: ", source_, ": ", section_, ".params.",
                                 printable(key), ": ", printable(type_),
                                 " has no such option; expected one of ", known));
        }
    }

    // Each of the following functions returns `otherwise` if the option is missing or null, and
    // throws ValueError if its value is invalid.
    double number(const char* key, double otherwise) const {
        const Tree* const value = find(key);
        if (value == nullptr) return otherwise;
        if (!value->is_number() || !std::isfinite(value->number())) fail(key, "a number", *value);
        return value->number();
    }
    std::int64_t integer(const char* key, std::int64_t otherwise, std::int64_t low) const {
        constexpr double kMost = 1e15;
        const double value = number(key, static_cast<double>(otherwise));
        if (value != std::floor(value) || value < static_cast<double>(low) || value > kMost)
            fail(key, str("an integer from ", low, " to 10^15"), *find(key));
        return static_cast<std::int64_t>(value);
    }
    bool flag(const char* key, bool otherwise) const {
        const Tree* const value = find(key);
        if (value == nullptr) return otherwise;
        if (!value->is_boolean()) fail(key, "true or false", *value);
        return value->boolean();
    }
    std::string text(const char* key, const char* otherwise) const {
        const Tree* const value = find(key);
        if (value == nullptr) return otherwise;
        if (!value->is_string()) fail(key, "text", *value);
        return value->string();
    }
    // Returns a list of `count` numbers; a single number is repeated.
    std::vector<double> numbers(const char* key, std::size_t count, double otherwise) const {
        const Tree* const value = find(key);
        if (value == nullptr || !value->is_list())
            return std::vector<double>(count, number(key, otherwise));
        std::vector<double> all;
        for (const Tree& one : value->elements())
            if (one.is_number() && std::isfinite(one.number())) all.push_back(one.number());
        if (all.size() != count || value->size() != count)
            fail(key, str("a number or ", count, " numbers"), *value);
        return all;
    }

    // Throws ValueError if the option is missing or null. `meaning` describes its value.
    void require(const char* key, const char* meaning) const {
        if (!has(key))
            throw ValueError(str("DeepSpeedConfig: ", source_, ": ", section_, ".params.", key,
                                 ": must be given (", meaning, ")"));
    }

    [[noreturn]] void fail(const char* key, const std::string& wanted, const Tree& given) const {
        throw ValueError(str("DeepSpeedConfig: ", source_, ": ", section_, ".params",
                             *key == '\0' ? "" : ".", key, ": must be ", wanted, ": ",
                             printable(to_json(given, -1))));
    }

  private:
    const Tree* find(const char* key) const {
        const Tree* const value = params_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }

    std::string source_, section_, type_;
    Tree params_ = Tree::map();
};

}  // namespace axle::accel
