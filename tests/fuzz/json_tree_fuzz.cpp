// from_json and to_json.
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    Tree tree;
    if (!takes([&] { tree = from_json(text_of(input)); })) return;
    const std::string text = to_json(tree);
    require(to_json(from_json(text)) == text, "what was written is read as it was");
    require(to_json(from_json(to_json(tree, -1))) == text, "the indent changes nothing");
    require(text_of(input).find('\0') == std::string_view::npos, "JSON has no zero bytes");
    (void)str(tree);
}

}  // namespace axle::tests
