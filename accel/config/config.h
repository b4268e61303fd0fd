// Configuration files.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axle::accel {

// A YAML map of scalars (lists become comma-separated text), in the order of the file. FileError
// names path and reason: missing, not YAML, not a map, a nested map, a key that comes twice, or
// what isn't UTF-8.
std::vector<std::pair<std::string, std::string>> read_config(const std::string& path);
// The same from memory; `name` stands for the path in messages.
std::vector<std::pair<std::string, std::string>> parse_config(std::string_view text,
                                                              const std::string& name);

}  // namespace axle::accel
