// Fuzzes from_json() and to_json().
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    Tree tree;
    if (!accepts([&] { tree = from_json(text_of(input)); })) return;
    const std::string text = to_json(tree);
    require(to_json(from_json(text)) == text, "written JSON is read back unchanged");
    require(to_json(from_json(to_json(tree, -1))) == text,
            "the indentation does not change the value");
    require(text_of(input).find('\0') == std::string_view::npos, "JSON with zero bytes is refused");
    (void)str(tree);
}

}  // namespace axle::tests
