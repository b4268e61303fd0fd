// Private to tools: the flags --megatron_lm_* of `axle launch`, and the section megatron_lm_config
// of its configuration.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "tools/axle/config_values.h"

namespace axle::launcher {

// An option of MegatronLMPlugin. The flag is --megatron_lm_<name>, the key in megatron_lm_config is
// megatron_lm_<name>, or the name alone, and the variable is MEGATRON_LM_<NAME>.
struct MegatronField {
    const char* name;
    const char* standard;  // the default; empty: the variable is not set
    const char* help;
};
const std::vector<MegatronField>& megatron_fields();

// Returns the variables of processes that use a MegatronLMPlugin, as `accelerate launch` sets them.
// A flag takes precedence over the configuration. Adds keys of the configuration that have no
// effect to `without_effect`. Throws ValueError for unknown keys and invalid values.
std::map<std::string, std::string> megatron_variables(const FlagValues& flags,
                                                      const Tree& megatron_lm_config,
                                                      std::vector<std::string>& without_effect);

}  // namespace axle::launcher
