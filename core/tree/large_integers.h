// Parses JSON with integers beyond int64, which other programs write: Transformers writes 10^30 as
// model_max_length of a tokenizer without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/tree/tree.h"

namespace axle {

// Does the same as from_json() (core/tree/tree.h), but integers beyond int64 are rounded to
// floating-point numbers.
Tree from_json_with_large_integers(std::string_view text, std::size_t max_memory = SIZE_MAX);

}  // namespace axle
