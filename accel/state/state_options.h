// Options of Accelerator::save_state() and load_state().
#pragma once

#include <string>

namespace axle::accel {

struct SaveStateOptions {
    bool safe_serialization = true;  // false throws UsageError: Axle reads pickles, but writes none
};

struct LoadStateOptions {
    // "", "cpu" or "on_device", as in Accelerate; anything else throws ValueError. It has no
    // effect: values are copied to the device of the object that they are loaded into.
    std::string map_location = {};
    bool strict = true;  // weights that a model or its file lacks are errors
};

}  // namespace axle::accel
