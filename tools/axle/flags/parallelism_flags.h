// Private to tools: the flags --parallelism_config_* of `axle launch`, and the section
// parallelism_config of its configuration.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"

namespace axle::launcher {

// A field of a ParallelismConfig. The flag is --parallelism_config_<name>, and the key in
// parallelism_config is parallelism_config_<name>, or the name alone.
struct ParallelismField {
    const char* name;
    const char* standard;  // the default; empty: the variable is not set
    const char* help;
};
const std::vector<ParallelismField>& parallelism_fields();

// The values of the flags by name.
using ParallelismFlags = std::map<std::string, std::optional<std::string>>;

// Returns the variables of processes that use a ParallelismConfig, as `accelerate launch` sets
// them. A flag takes precedence over the configuration. Throws ValueError for unknown keys, for
// sizes that are not positive integers, and for values of the configuration that are lists, maps or
// fractions.
std::map<std::string, std::string> parallelism_variables(const ParallelismFlags& flags,
                                                         const Tree& parallelism_config);

}  // namespace axle::launcher
