// Private to tools: values of flags, and of sections of a configuration, as text.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/text/text.h"
#include "core/tree/tree.h"
#include "kernels/error.h"

namespace axle::launcher {

// Maps the names of flags to their values, or to nullopt if the flag was not given.
using FlagValues = std::map<std::string, std::optional<std::string>>;

inline bool is_one_of(const std::string& text, const std::vector<std::string>& words) {
    return std::ranges::find(words, text) != words.end();
}

inline std::string joined(const std::vector<std::string>& names, const char* separator = ", ") {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : separator) + name;
    return text;
}

// Throws ValueError "name must be what: 'given'".
[[noreturn]] inline void must_be(const std::string& name, const std::string& what,
                                 const std::string& given) {
    throw ValueError(str(name, " must be ", what, ": ", in_quotes(given)));
}

// Returns a value of a section as text, or nullopt if it is missing or null. A list of texts is
// joined with commas. Throws ValueError, whose message begins with `prefix`, for other values.
inline std::optional<std::string> text_of(const Tree& section, const std::string& key,
                                          const std::string& prefix = {}) {
    const Tree* const found = section.is_map() ? section.find(key) : nullptr;
    if (found == nullptr || found->is_null()) return std::nullopt;
    if (found->is_string()) return found->string();
    if (found->is_boolean()) return found->boolean() ? "true" : "false";
    if (found->is_number()) return to_json(*found, -1);
    const bool is_list =
        found->is_list() &&
        std::ranges::all_of(found->elements(), [](const Tree& e) { return e.is_string(); });
    if (!is_list)
        must_be(prefix + key, "text, a number, true, false or a list of texts",
                to_json(*found, -1));
    std::vector<std::string> names;
    for (const Tree& element : found->elements()) names.push_back(element.string());
    return joined(names, ",");
}

// Throws ValueError, which suggests a similar known key or lists the known keys, unless `key` is a
// known key of the section. `given` is the key as it is in the configuration.
inline void check_key(const char* section, const std::string& key, const std::string& given,
                      const std::vector<std::string>& known) {
    if (is_one_of(key, known)) return;
    const std::string near = nearest(key, known);
    throw ValueError(
        str(section, ": unknown key ", in_quotes(given),
            near.empty() ? "; expected one of " + joined(known) : "; did you mean " + near + "?"));
}

}  // namespace axle::launcher
