// Private to tools: the flags --fsdp_* of `axle launch`, and the section fsdp_config of its
// configuration.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "tools/axle/config_values.h"

namespace axle::launcher {

// An option of FSDP. The flag is --fsdp_<name>, and the key in fsdp_config is fsdp_<name>, or the
// name alone.
struct FsdpField {
    const char* name;
    const char* variable;  // the environment variable of the processes
    const char* standard;  // the default; empty: the variable is not set
    const char* help;
};
const std::vector<FsdpField>& fsdp_fields();

// Returns fsdp_config with the prefix fsdp_ added to keys that do not have it. Throws ValueError,
// which suggests a similar key or lists the known keys, for unknown keys. Returns an empty section
// if fsdp_config is null.
Tree fsdp_section(const Tree& fsdp_config);
// Returns the variables of processes that use FSDP, as `accelerate launch` sets them. A flag takes
// precedence over the configuration. Throws ValueError for unknown keys and invalid values, and,
// with version 1, if cpu_ram_efficient_loading is given as true but sync_module_states is not true.
std::map<std::string, std::string> fsdp_variables(const FlagValues& flags, const Tree& fsdp_config);

// Returns the section fsdp_config with the values of the given flags. The version is 2 by default.
// Throws ValueError for invalid values.
Tree fsdp_config_of(FlagValues flags);

// Converts a configuration of FSDP version 1 to version 2 and returns the result. Logs a warning
// for each option that version 2 does not have. Throws ValueError for unknown keys and strategies,
// and if two keys name different strategies, unless fsdp_sharding_strategy is FULL_SHARD, the
// default.
Tree to_fsdp2(const Tree& fsdp_config);

}  // namespace axle::launcher
