// Durability: whether written data are on the disk before a function returns.
#pragma once

#include <cstdint>

namespace axle {

// `full` writes data to the disk. `none` leaves this to the system: the data survive the end of the
// process, but not a power failure.
enum class Durability : std::uint8_t { full, none };

}  // namespace axle
