// Reads configuration files that are flat YAML maps.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axle::accel {

// Returns the keys and values of a YAML map in the order of the file; an empty file has none. Lists
// become comma-separated text. Throws FileError with path and reason if the file is missing, is not
// a YAML map in UTF-8, has a value that is neither a scalar nor a list of scalars, has a repeated
// key, or exceeds the limit of accel/config/yaml.h.
std::vector<std::pair<std::string, std::string>> read_config(const std::string& path);
// Parses the text of a configuration file as read_config() does. Error messages begin with `name`
// instead of a path.
std::vector<std::pair<std::string, std::string>> parse_config(std::string_view text,
                                                              const std::string& name);

}  // namespace axle::accel
