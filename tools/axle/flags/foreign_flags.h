// Private to tools: flags of `accelerate launch` for hardware and libraries that Axle does not use.
#pragma once

#include <vector>

namespace axle::launcher {

struct ForeignFlag {
    const char* name;  // the name without dashes
    bool takes_value;
};

// Returns flags that are accepted and have no effect.
const std::vector<ForeignFlag>& flags_without_effect();

// A flag for hardware or a service that Axle does not use. Such flags throw UsageError.
struct RefusedFlag {
    const char* name;
    bool takes_value;
    const char* instead;
};
const std::vector<RefusedFlag>& refused_flags();

}  // namespace axle::launcher
