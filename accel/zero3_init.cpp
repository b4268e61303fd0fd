#include "accel/zero3_init.h"

namespace axle::accel {

Zero3Init::Zero3Init(const Accelerator& accelerator, bool enabled) {
    const auto& plugin = accelerator.options().deepspeed_plugin;
    if (enabled && plugin && plugin->is_zero3_init_enabled() && accelerator.num_processes() > 1)
        deferred_.emplace();
}

}  // namespace axle::accel
