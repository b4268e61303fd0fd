// Reads and writes YAML as PyYAML does (YAML 1.1): `no` is false, `1e-3` is text, `010` is 8.
#pragma once

#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle::accel {

// Returns the value of a document. Throws ValueError "name: reason" for text that is not YAML in
// UTF-8, repeated keys, tags that safe_load does not support, more than 10000 values, or more than
// 32 levels. Dates stay text.
Tree parse_yaml(std::string_view text, const std::string& name);

// Returns text like yaml.safe_dump's, but lines are not folded and keys are not sorted. Text that
// would be read as another type is quoted. Throws ValueError for text that is not UTF-8.
std::string to_yaml(const Tree& map);

}  // namespace axle::accel
