// Fuzzes the format in which processes exchange trees.
#include "core/tree/tree.h"
#include "dist/group/tree_bytes.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    Tree tree;
    if (!accepts([&] { tree = dist::from_bytes(text_of(input)); })) return;
    require(dist::to_bytes("fuzz", tree) == text_of(input), "a tree has exactly one form");
}

}  // namespace axle::tests
