#include "accel/config/structured_config.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "accel/config/yaml.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

// Parses text as a number. Returns false if the text is not a number, or is out of range.
template <class T>
bool parse_number(const std::string& text, T& value) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && at == end && !text.empty();
}

std::string_view trimmed(std::string_view text) {
    const auto begin = std::min(text.find_first_not_of(" \t"), text.size());
    return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string joined(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
}

void override_with(Tree& config, const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
        throw UsageError(str("config: an override must be group.key=value: ", in_quotes(text)));
    const std::string path = text.substr(0, equals);
    Tree* group = &config;
    std::size_t begin = 0;
    for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
        const std::string name = path.substr(begin, dot - begin);
        if (!group->contains(name) || !(*group)[name].is_map()) group->set(name, Tree::map());
        group = &(*group)[name];
        begin = dot + 1;
    }
    group->set(path.substr(begin), text.substr(equals + 1));
}

}  // namespace

Tree read_structured_config(const std::string& path, const std::vector<std::string>& overrides) {
    Tree config = path.empty() ? Tree::map() : parse_yaml(read_file(path, kMaxYaml), path);
    if (config.is_null()) config = Tree::map();
    if (!config.is_map())
        throw ValueError(str(printable(path), ": must be a map of groups of options: ", config));
    for (const std::string& text : overrides) override_with(config, text);
    return config;
}

ConfigFields::ConfigFields(const Tree& given) {
    groups_.push_back({.name = "", .given = given.is_null() ? nullptr : &given});
}

Tree ConfigFields::finish() {
    check_known();
    return std::move(groups_.back().resolved);
}

void ConfigFields::check_complete() const {
    if (!missing_.empty())
        throw ValueError(str("config: required options are missing: ", joined(missing_),
                             "; set them in the file, or as ", missing_[0],
                             "=VALUE on the command line"));
}

const Tree* ConfigFields::find(const char* name) {
    Group& group = groups_.back();
    group.known.emplace_back(name);
    return group.given == nullptr ? nullptr : group.given->find(name);
}

void ConfigFields::resolve(const char* name, Tree value) {
    if (value.is_string() && is_missing(value)) missing_.push_back(path(name));
    groups_.back().resolved.set(name, std::move(value));
}

void ConfigFields::begin_group(const char* name) {
    const Tree* given = find(name);
    if (given != nullptr && given->is_null()) given = nullptr;
    if (given != nullptr && !given->is_map()) fail(name, "a group of options", *given);
    groups_.push_back({.name = path(name) + ".", .given = given});
}

void ConfigFields::end_group() {
    check_known();
    Group group = std::move(groups_.back());
    groups_.pop_back();
    groups_.back().resolved.set(groups_.back().known.back(), std::move(group.resolved));
}

void ConfigFields::check_known() const {
    const Group& group = groups_.back();
    if (group.given == nullptr) return;
    for (const auto& [key, value] : group.given->entries()) {
        if (std::find(group.known.begin(), group.known.end(), key) != group.known.end()) continue;
        const std::string meant = nearest(key, group.known);
        throw ValueError(str("config: unknown option ", in_quotes(group.name + key),
                             meant.empty()
                                 ? "; expected one of "
                                 : "; did you mean " + group.name + meant + "? Expected one of ",
                             joined(group.known)));
    }
}

std::string ConfigFields::path(const std::string& name) const { return groups_.back().name + name; }

void ConfigFields::fail(const char* name, const char* wanted, const Tree& given) const {
    throw ValueError(str("config: ", path(name), " must be ", wanted, ": ",
                         given.is_string() ? in_quotes(given.string()) : str(given)));
}

void ConfigFields::read(const char* name, const Tree& given, bool& value) const {
    if (given.is_boolean()) {
        value = given.boolean();
        return;
    }
    if (!given.is_string() || (given.string() != "true" && given.string() != "false"))
        fail(name, "true or false", given);
    value = given.string() == "true";
}

void ConfigFields::read(const char* name, const Tree& given, std::int64_t& value) const {
    if (given.is_integer())
        value = given.integer();
    else if (!given.is_string() || !parse_number(given.string(), value))
        fail(name, "an integer", given);
}

void ConfigFields::read(const char* name, const Tree& given, std::uint64_t& value) const {
    if (given.is_integer() && given.integer() >= 0)
        value = static_cast<std::uint64_t>(given.integer());
    else if (!given.is_string() || !parse_number(given.string(), value))
        fail(name, "a non-negative integer", given);
}

void ConfigFields::read(const char* name, const Tree& given, double& value) const {
    if (given.is_number())
        value = given.number();
    else if (!given.is_string() || !parse_number(given.string(), value))
        fail(name, "a number", given);
}

void ConfigFields::read(const char* name, const Tree& given, std::string& value) const {
    if (given.is_string())
        value = given.string();
    else if (given.is_boolean())
        value = given.boolean() ? "yes" : "no";  // YAML parses yes and no as booleans
    else if (given.is_number())
        value = to_json(given, -1);
    else
        fail(name, "text", given);
}

void ConfigFields::read(const char* name, const Tree& given,
                        std::vector<std::string>& value) const {
    value.clear();
    if (given.is_list()) {
        for (const Tree& element : given.elements()) read(name, element, value.emplace_back());
        return;
    }
    if (!given.is_string()) fail(name, "a list of names", given);
    std::string_view text = trimmed(given.string());
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    while (!trimmed(text).empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        value.emplace_back(trimmed(text.substr(0, comma)));
        text.remove_prefix(std::min(comma + 1, text.size()));
    }
}

bool ConfigFields::is_none(const Tree& given) {
    return given.is_null() || (given.is_string() && given.string() == "null");
}

bool ConfigFields::is_missing(const Tree& given) {
    return is_none(given) || (given.is_string() && given.string() == "???");
}

Tree ConfigFields::tree_of(const std::vector<std::string>& value) {
    Tree list = Tree::list();
    for (const std::string& element : value) list.push_back(element);
    return list;
}

}  // namespace axle::accel
