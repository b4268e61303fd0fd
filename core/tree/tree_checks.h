// Private to core: checks and constants that the sources of Tree share.
#pragma once

#include "core/tree/tree.h"
#include "kernels/error.h"

namespace axle::tree {

// The strings that JSON files contain for numbers that JSON does not support.
inline constexpr const char* kNan = "NaN";
inline constexpr const char* kInfinity = "Infinity";
inline constexpr const char* kMinusInfinity = "-Infinity";

// Throws ValueError if depth exceeds kMaxTreeDepth.
inline void check_depth(const char* op, int depth) {
    if (depth > kMaxTreeDepth)
        throw ValueError(str(op, ": the tree is nested deeper than ", kMaxTreeDepth, " levels"));
}
// Throws ValueError for duplicate keys. Takes n log n time, so that a file with a million keys is
// not an attack.
void check_keys(const char* op, const Tree::Map& entries);

}  // namespace axle::tree
