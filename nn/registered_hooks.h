// Private to nn: the hooks that programs added to a module.
#pragma once

#include <cstdint>
#include <map>

#include "nn/module.h"

namespace axle::nn {

// Graphs share this object with the module, so it can outlive the module.
struct RegisteredHooks {
    Module* module = nullptr;  // null after the module was destroyed
    // The hooks, in the order of registration.
    std::map<std::int64_t, ForwardPreHook> before;
    std::map<std::int64_t, ForwardHook> after;
    std::map<std::int64_t, FullBackwardHook> backward;
    std::int64_t next = 0;
};

}  // namespace axle::nn
