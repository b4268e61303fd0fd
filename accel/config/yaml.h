// YAML as PyYAML understands it (YAML 1.1): `no` is false, `1e-3` is text, `010` is 8.
#pragma once

#include <string>
#include <string_view>

#include "core/tree/tree.h"

namespace axle::accel {

// ValueError "name: reason" for text that isn't YAML in UTF-8, a repeated key, a tag that
// safe_load doesn't know, more than 10000 values, or nesting deeper than 32. Dates stay text.
Tree parse_yaml(std::string_view text, const std::string& name);

// As yaml.safe_dump writes it, but for lines, which are not folded; maps in their own order. Text
// that would come back as something else is quoted. ValueError for text that isn't UTF-8.
std::string to_yaml(const Tree& map);

}  // namespace axle::accel
