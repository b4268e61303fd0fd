// Words for people: nearest names, sizes, durations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axle::inline v0::accel {

// The candidate with the smallest edit distance to `name`, or "" if none is near enough to be what
// was meant (more than a third of the letters differ).
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// "17.3 MB" (powers of 1000)
std::string human_bytes(std::int64_t bytes);
// "12:07", "1:02:45"
std::string human_duration(double seconds);

}  // namespace axle::inline v0::accel
