#include "accel/config.h"

#include <set>

#include <yaml-cpp/yaml.h>

#include "core/file.h"
#include "kernels/error.h"

namespace axle::inline v0::accel {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw FileError(printable(path) + ": " + reason);
}

std::string scalar(const std::string& path, const std::string& key, const YAML::Node& node) {
    if (node.IsNull()) return "";
    if (!node.IsScalar()) fail(path, "'" + key + "' must be a plain value or a list of them");
    return node.Scalar();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_config(const std::string& path) {
    const std::string text = read_file(path);
    YAML::Node root;
    try {
        root = YAML::Load(text);
    } catch (const YAML::Exception& error) {
        fail(path, str("not YAML: ", error.what()));
    }
    std::vector<std::pair<std::string, std::string>> result;
    if (root.IsNull()) return result;
    if (!root.IsMap()) fail(path, "must be a map of option names to values");
    std::set<std::string> seen;
    for (const auto& entry : root) {
        const std::string key = scalar(path, "a key", entry.first);
        if (!seen.insert(key).second) fail(path, "'" + key + "' comes twice");
        std::string value;
        if (entry.second.IsSequence()) {
            for (std::size_t i = 0; i < entry.second.size(); ++i)
                value += (i == 0 ? "" : ",") + scalar(path, key, entry.second[i]);
        } else {
            value = scalar(path, key, entry.second);
        }
        result.emplace_back(key, value);
    }
    return result;
}

}  // namespace axle::inline v0::accel
