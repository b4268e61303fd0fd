// Private to tools: flags of `accelerate launch` for machines and libraries that Axle doesn't use.
#pragma once

#include <vector>

namespace axle::launcher {

struct ForeignFlag {
    const char* name;  // without dashes
    bool takes_value;
};

// Accepted, for they do nothing there either unless another flag asks for their machine or library.
const std::vector<ForeignFlag>& flags_without_effect();

// Asked for, these are refused.
struct RefusedFlag {
    const char* name;
    bool takes_value;
    const char* instead;
};
const std::vector<RefusedFlag>& refused_flags();

}  // namespace axle::launcher
