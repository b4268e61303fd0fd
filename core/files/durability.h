// Durability: whether written data are on the disk before a function returns.
#pragma once

#include <cstdint>

namespace axle {

// With `none`, data survive the end of the process, but not a power failure.
enum class Durability : std::uint8_t { full, none };

}  // namespace axle
