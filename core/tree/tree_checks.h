// Private to core: checks and constants that the sources of Tree share.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/files/file.h"
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
inline void check_keys(const char* op, const Tree::Map& entries) {
    if (entries.size() < 2) return;
    std::vector<std::string_view> keys;
    keys.reserve(entries.size());
    for (const Tree::Entry& entry : entries) keys.push_back(entry.key);
    std::sort(keys.begin(), keys.end());
    const auto duplicate = std::adjacent_find(keys.begin(), keys.end());
    if (duplicate != keys.end())
        throw ValueError(str(op, ": duplicate key: ", in_quotes(*duplicate)));
}

}  // namespace axle::tree
