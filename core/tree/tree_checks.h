// Private to core: checks and constants that are shared by the sources of Tree.
#pragma once

#include "core/tree/tree.h"
#include "kernels/error.h"

namespace axle::tree {

// The strings that represent NaN and infinities in JSON files. JSON does not support these numbers.
inline constexpr const char* kNan = "NaN";
inline constexpr const char* kInfinity = "Infinity";
inline constexpr const char* kMinusInfinity = "-Infinity";

// Throws ValueError if depth exceeds kMaxTreeDepth.
inline void check_depth(const char* op, int depth) {
    if (depth > kMaxTreeDepth)
        throw ValueError(str(op, ": the tree is nested deeper than ", kMaxTreeDepth, " levels"));
}
// Throws ValueError if a key occurs twice. The time is O(n log n), so that a malicious file with a
// million keys cannot block the program.
void check_keys(const char* op, const Tree::Map& entries);

}  // namespace axle::tree
