#include "accel/config/config.h"

#include <set>

#include <yaml-cpp/yaml.h>

#include "accel/config/yaml.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kKey = "a key";

[[noreturn]] void fail(const std::string& name, const std::string& reason) {
    throw FileError(printable(name) + ": " + reason);
}

// Returns whether text is UTF-8. The YAML parser accepts other bytes, and creates them from the
// escapes \_ and \N, but JSON writers reject them.
bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const bool ascii = static_cast<unsigned char>(text[0]) < 0x80;
        const std::size_t length = ascii ? 1 : utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string scalar(const std::string& name, const std::string& what, const YAML::Node& node) {
    if (node.IsNull()) return "";
    if (!node.IsScalar()) {
        const bool is_key = what == kKey;
        fail(name, what + " must be a plain value" + (is_key ? "" : " or a list of plain values"));
    }
    if (!is_utf8(node.Scalar())) fail(name, what + " must be UTF-8 text");
    return node.Scalar();
}

}  // namespace

Options read_config(const std::string& path) {
    return parse_config(read_file(path, kMaxYaml), path);
}

Options parse_config(std::string_view text, const std::string& name) {
    if (std::ssize(text) > kMaxYaml)
        fail(name, str("has ", text.size(), " bytes, more than the maximum of ", kMaxYaml));
    YAML::Node root;
    try {
        root = YAML::Load(std::string(text));
    } catch (const YAML::Exception& error) {
        fail(name, "not YAML: " + printable(error.what()));
    }
    Options result;
    if (root.IsNull()) return result;
    if (!root.IsMap()) fail(name, "must be a map of option names to values");
    std::set<std::string> seen;
    for (const auto& entry : root) {
        const std::string key = scalar(name, kKey, entry.first);
        if (!seen.insert(key).second) fail(name, "the key " + in_quotes(key) + " is repeated");
        std::string value;
        if (entry.second.IsSequence()) {
            for (std::size_t i = 0; i < entry.second.size(); ++i)
                value += (i == 0 ? "" : ",") + scalar(name, in_quotes(key), entry.second[i]);
        } else {
            value = scalar(name, in_quotes(key), entry.second);
        }
        result.emplace_back(key, value);
    }
    return result;
}

}  // namespace axle::accel
