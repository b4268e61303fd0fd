// Private to tools: the flags of `axle launch` for DeepSpeed, and the section deepspeed_config of
// its configuration.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "tools/axle/config_values.h"

namespace axle::launcher {

// An option of DeepSpeed. The flag is --<name>, and the key in deepspeed_config is <name>.
struct DeepSpeedField {
    const char* name;
    // The environment variable of the processes; empty for options of the launcher.
    const char* variable;
    const char* help;
};
const std::vector<DeepSpeedField>& deepspeed_fields();

// Returns the value of an option, or nullopt if it is not set; a flag takes precedence over the
// configuration. Throws ValueError if the value is invalid.
std::optional<std::string> deepspeed_value(const FlagValues& flags, const Tree& deepspeed_config,
                                           const std::string& name);

// Returns the variables of processes that use DeepSpeed's options, as `accelerate launch` sets
// them. ACCELERATE_CONFIG_DS_FIELDS lists the keys of the configuration, and mixed_precision if
// `has_precision`. Throws ValueError for unknown keys and invalid values.
std::map<std::string, std::string> deepspeed_variables(const FlagValues& flags,
                                                       const Tree& deepspeed_config,
                                                       bool has_precision);

// Returns the section deepspeed_config with the values of the given flags. Throws ValueError for
// invalid values.
Tree deepspeed_config_of(const FlagValues& flags);

// Returns the possible values of deepspeed_multinode_launcher, in Accelerate's order.
const std::vector<std::string>& multinode_launchers();

}  // namespace axle::launcher
