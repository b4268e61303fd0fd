// parse_config.
#include "accel/config/config.h"
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    std::vector<std::pair<std::string, std::string>> options;
    if (!takes([&] { options = accel::parse_config(text_of(input), kHostileName); })) return;
    // JSON is YAML, but for keys of more than 1024 characters before their colon.
    Tree map = Tree::map();
    for (const auto& [key, value] : options) {
        if (to_json(Tree(key), -1).size() > 1024) return;
        map.set(key, value);
    }
    require(accel::parse_config(to_json(map), kHostileName) == options, "options come back");
}

}  // namespace axle::tests
