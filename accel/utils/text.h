// Words for people: sizes, durations.
#pragma once

#include <cstdint>
#include <string>

namespace axle::accel {

// "17.3 MB" (powers of 1000)
std::string human_bytes(std::int64_t bytes);
// "12:07", "1:02:45"
std::string human_duration(double seconds);

}  // namespace axle::accel
