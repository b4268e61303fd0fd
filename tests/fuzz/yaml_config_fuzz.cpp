// Fuzzes parse_config().
#include "accel/config/config.h"
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    std::vector<std::pair<std::string, std::string>> options;
    if (!accepts([&] { options = accel::parse_config(text_of(input), kHostileName); })) return;
    // JSON is valid YAML, except that YAML limits keys to 1024 characters.
    Tree map = Tree::map();
    for (const auto& [key, value] : options) {
        if (to_json(Tree(key), -1).size() > 1024) return;
        map.set(key, value);
    }
    require(accel::parse_config(to_json(map), kHostileName) == options, "options are restored");
}

}  // namespace axle::tests
