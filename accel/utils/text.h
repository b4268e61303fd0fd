// Human-readable sizes and durations.
#pragma once

#include <cstdint>
#include <string>

namespace axle::accel {

// Formats a size with a unit that is a power of 1000: "17.3 MB".
std::string human_bytes(std::int64_t bytes);
// Formats a duration: "12:07", "1:02:45".
std::string human_duration(double seconds);

}  // namespace axle::accel
