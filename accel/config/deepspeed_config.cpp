#include "accel/config/deepspeed_config.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr std::size_t kMaxMemory = std::size_t{64} << 20;  // 64 times kMaxDeepSpeedConfig

// Returns the decoded bytes, or nullopt if the text is not base64.
std::optional<std::string> from_base64(std::string_view text) {
    while (!text.empty() && text.back() == '=') text.remove_suffix(1);
    if (text.size() % 4 == 1) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 2);
    unsigned bits = 0;
    int count = 0;
    for (const char c : text) {
        unsigned digit = 0;
        if (c >= 'A' && c <= 'Z')
            digit = static_cast<unsigned>(c - 'A');
        else if (c >= 'a' && c <= 'z')
            digit = static_cast<unsigned>(c - 'a') + 26;
        else if (c >= '0' && c <= '9')
            digit = static_cast<unsigned>(c - '0') + 52;
        else if (c == '+' || c == '-')
            digit = 62;
        else if (c == '/' || c == '_')
            digit = 63;
        else
            return std::nullopt;
        bits = (bits << 6 | digit) & 0xffff;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xff);
    }
    return bytes;
}

Tree parse(const std::string& json, const std::string& source) {
    Tree tree;
    try {
        tree = from_json(json, kMaxMemory);
    } catch (const ValueError& error) {
        throw ValueError(str(source, ": ", error.what()));
    }
    if (!tree.is_map())
        throw ValueError(str(
            source, ": a DeepSpeed configuration must be a JSON object: ", printable(str(tree))));
    return tree;
}

bool is_file(const std::string& path) {
    constexpr std::size_t kLongestPath = 4096;
    if (path.size() > kLongestPath || path.find('\0') != std::string::npos) return false;
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

// Returns the value of Python's bool(value).
bool is_truthy(const Tree& value) {
    if (value.is_null()) return false;
    if (value.is_boolean()) return value.boolean();
    if (value.is_number()) return value.number() != 0;
    if (value.is_string()) return !value.string().empty();
    return !value.empty();
}

bool is_equal(const Tree& a, const Tree& b) {
    if (a.is_number() && b.is_number()) return a.number() == b.number();
    return to_json(a, -1) == to_json(b, -1);
}

bool is_auto_value(const Tree& value) { return value.is_string() && value.string() == "auto"; }

// Implements DeepSpeedConfig::fill_match() for one value. `mismatches` may be nullptr.
void fill(Tree& value, std::string_view name, const Tree& values, const std::string& source,
          std::vector<std::string>* mismatches) {
    const Tree* const known = values.is_map() ? values.find(name) : nullptr;
    if (is_auto_value(value)) {
        if (known == nullptr)
            throw ValueError(str(source, ": ", printable(name),
                                 ": 'auto' cannot be replaced, because no value is known for it; "
                                 "write the value in the configuration"));
        value = *known;
    } else if (mismatches != nullptr && known != nullptr && !value.is_null() &&
               !is_equal(value, *known)) {
        mismatches->push_back(str(printable(name), " is ", printable(to_json(value, -1)),
                                  ", but the program uses ", printable(to_json(*known, -1))));
    }
}

// Calls fill() for all values of a section. `name` is the name of the section, followed by a dot,
// and is unchanged on return.
void fill_all(Tree& section, std::string& name, const Tree& values, const std::string& source,
              std::vector<std::string>* mismatches) {
    const std::size_t size = name.size();
    for (auto& [key, value] : section.entries()) {
        name += key;
        if (value.is_map()) {
            name += '.';
            fill_all(value, name, values, source, mismatches);
        } else {
            fill(value, name, values, source, mismatches);
        }
        name.resize(size);
    }
}

}  // namespace

DeepSpeedConfig::DeepSpeedConfig(Tree config) : tree_(std::move(config)) {
    if (!tree_.is_map())
        throw ValueError(str("DeepSpeedConfig: the configuration must be a map: ", tree_));
}

DeepSpeedConfig::DeepSpeedConfig(const std::string& text) {
    if (text.empty() || text == "none") return;
    if (is_file(text)) {
        source_ = in_quotes(text);
        tree_ = parse(read_file(text, kMaxDeepSpeedConfig), source_);
        return;
    }
    constexpr std::int64_t kMaxText = kMaxDeepSpeedConfig / 3 * 4 + 4;
    if (std::cmp_greater(text.size(), kMaxText))
        throw ValueError(str("DeepSpeedConfig: the configuration must have at most ", kMaxText,
                             " bytes of text: ", text.size()));
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') {
        tree_ = parse(text, source_);
        return;
    }
    const auto json = from_base64(text);
    if (!json || !json->starts_with('{'))
        throw ValueError(
            str("DeepSpeedConfig: expected the path of an existing JSON file, JSON "
                "text, or JSON text in base64: ",
                in_quotes(text)));
    tree_ = parse(*json, source_);
}

const Tree* DeepSpeedConfig::find(std::string_view name) const {
    const Tree* node = &tree_;
    while (node != nullptr && node->is_map()) {
        const std::size_t dot = name.find('.');
        node = node->find(name.substr(0, dot));
        if (dot == std::string_view::npos) return node;
        name.remove_prefix(dot + 1);
    }
    return nullptr;
}

Tree DeepSpeedConfig::get_value(std::string_view name, const Tree& otherwise) const {
    const Tree* const value = find(name);
    return value == nullptr ? otherwise : *value;
}

std::pair<Tree*, std::string> DeepSpeedConfig::find_config_node(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {&tree_, std::string(name)};
    const Tree* const section = find(name.substr(0, dot));
    const bool is_section = section != nullptr && section->is_map();
    return {is_section ? const_cast<Tree*>(section) : nullptr, std::string(name.substr(dot + 1))};
}

void DeepSpeedConfig::set(std::string_view name, Tree value) {
    Tree* section = &tree_;
    std::string_view rest = name;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
        const std::string_view key = rest.substr(0, dot);
        if (!section->contains(key) || (*section)[key].is_null()) section->set(key, Tree::map());
        section = &(*section)[key];
        if (!section->is_map())
            throw ValueError(str(source_, ": ", printable(name), ": ", printable(key),
                                 " must be a map: ", *section));
        rest.remove_prefix(dot + 1);
    }
    section->set(rest, std::move(value));
}

void DeepSpeedConfig::del_config_sub_tree(std::string_view name, bool must_exist) {
    const auto [section, key] = find_config_node(name);
    std::size_t erased = 0;
    if (section != nullptr)
        erased = std::erase_if(section->entries(),
                               [&key = key](const Tree::Entry& entry) { return entry.key == key; });
    if (erased == 0 && must_exist)
        throw ValueError(
            str(source_, ": del_config_sub_tree: the key to delete is missing: ", printable(name)));
}

bool DeepSpeedConfig::is_true(std::string_view name) const {
    const Tree* const value = find(name);
    return value != nullptr && !value->is_null() && is_truthy(*value);
}

bool DeepSpeedConfig::is_false(std::string_view name) const {
    const Tree* const value = find(name);
    return value != nullptr && !value->is_null() && !is_truthy(*value);
}

bool DeepSpeedConfig::is_auto(std::string_view name) const {
    const Tree* const value = find(name);
    return value != nullptr && is_auto_value(*value);
}

bool DeepSpeedConfig::has_stage(int stage) const {
    const Tree* const value = find("zero_optimization.stage");
    return value != nullptr && value->is_number() && value->number() == stage;
}

bool DeepSpeedConfig::is_offload() const {
    if (!is_zero2() && !is_zero3()) return false;
    const auto offloads = [&](const char* name) {
        const Tree* const device = find(name);
        return device != nullptr && device->is_string() &&
               (device->string() == "cpu" || device->string() == "nvme");
    };
    return offloads("zero_optimization.offload_optimizer.device") ||
           offloads("zero_optimization.offload_param.device");
}

void DeepSpeedConfig::fill_match(std::string_view name, const Tree& values) {
    const auto [section, key] = find_config_node(name);
    if (section != nullptr && section->contains(key))
        fill((*section)[key], name, values, source_, nullptr);
}

void DeepSpeedConfig::fill_match(std::string_view name, const Tree& values,
                                 std::vector<std::string>& mismatches) {
    const auto [section, key] = find_config_node(name);
    if (section != nullptr && section->contains(key))
        fill((*section)[key], name, values, source_, &mismatches);
}

void DeepSpeedConfig::deepspeed_config_process(const Tree& values, bool must_match) {
    std::vector<std::string> mismatches;
    std::string name;
    fill_all(tree_, name, values, source_, must_match ? &mismatches : nullptr);
    if (mismatches.empty()) return;
    std::string text;
    for (const std::string& line : mismatches) text += "\n- " + line;
    throw ValueError(str(source_,
                         ": these values differ from the values of the program; correct them, "
                         "or set them to \"auto\":",
                         text));
}

}  // namespace axle::accel
