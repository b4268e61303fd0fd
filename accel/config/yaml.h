// Reads and writes YAML as PyYAML does (YAML 1.1): `no` is false, `1e-3` is text, `010` is 8.
//
// Limits: a document has at most kMaxYaml bytes. Parsing needs at most 512 bytes of memory per byte
// of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle::accel {

inline constexpr std::int64_t kMaxYaml = std::int64_t{256} << 10;

// Parses a YAML document and returns its value. Dates stay text. Throws ValueError, with a message
// that begins with `name`, for text that is not YAML in UTF-8. Also throws it for keys that are
// repeated, null, lists or maps (numbers and booleans as keys become text), for tags other than
// !!str, !!seq and !!map, for integers beyond 2^53, and for documents of more than kMaxYaml bytes,
// 10000 values or 32 levels.
Tree parse_yaml(std::string_view text, const std::string& name);

// Formats a map as YAML text, as yaml.safe_dump does, but without folding lines or sorting keys.
// Text that would be read as another type is quoted. Throws ValueError for tensors, and for text
// that is not UTF-8.
std::string to_yaml(const Tree& map);

}  // namespace axle::accel
