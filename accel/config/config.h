// Reads flat configuration files.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axle::accel {

// Returns a YAML map of scalars in the order of the file; lists become comma-separated text. Throws
// FileError with path and reason if the file is missing, not YAML, not a map, not UTF-8, or has a
// nested map or a repeated key.
std::vector<std::pair<std::string, std::string>> read_config(const std::string& path);
// Does the same for text in memory; `name` replaces the path in messages.
std::vector<std::pair<std::string, std::string>> parse_config(std::string_view text,
                                                              const std::string& name);

}  // namespace axle::accel
