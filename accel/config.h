// Configuration files.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace axle::inline v0::accel {

// A YAML map of scalars (lists become comma-separated text), in the order of the file. FileError
// names path and reason: missing, not YAML, not a map, a nested map, or a key that comes twice.
std::vector<std::pair<std::string, std::string>> read_config(const std::string& path);

}  // namespace axle::inline v0::accel
