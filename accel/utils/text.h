// Formats sizes and durations for users.
#pragma once

#include <cstdint>
#include <string>

namespace axle::accel {

// Formats a size with a unit that is a power of 1000: "17.3 MB".
std::string human_bytes(std::int64_t bytes);
// Formats a duration as "12:07" (minutes) or "1:02:45" (hours). Returns "?" for NaN, and for
// durations that are negative or above 1e9 seconds.
std::string human_duration(double seconds);

}  // namespace axle::accel
