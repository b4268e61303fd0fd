// Private to data: parses rows of JSON lines.
#pragma once

#include <string_view>

#include "core/tree/tree.h"

namespace axle::data {

// Does the same as from_json() (core/tree/tree.h). `line` must be valid UTF-8. `keys` is the
// expected number of keys of the row, for which memory is reserved.
//
// RapidJSON parses rows several times as fast as the parser of from_json(), which reports the
// position of an error and parses all texts that RapidJSON does not accept.
Tree parse_json_row(std::string_view line, std::size_t keys = 0);

}  // namespace axle::data
