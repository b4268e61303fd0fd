// Options of Accelerator::save_state() and load_state().
#pragma once

#include <string>

namespace axle::accel {

struct SaveStateOptions {
    bool safe_serialization = true;  // false throws UsageError: Axle does not write pickles
};

struct LoadStateOptions {
    // The device of loaded values: "", "cpu" or "on_device", as in Accelerate; other text throws
    // ValueError. The option has no effect, because values are copied to the device of the object
    // into which they are loaded.
    std::string map_location = {};
    bool strict = true;  // whether missing and unexpected weights are errors
};

}  // namespace axle::accel
