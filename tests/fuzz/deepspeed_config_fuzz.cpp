// Fuzzes DeepSpeedConfig, and the plugins, optimizers and schedules that a configuration describes.
#include <string>

#include "accel/prepare/deepspeed_objects.h"
#include "core/ops.h"
#include "core/system/log.h"
#include "optim/adam.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    set_log_sink([](LogLevel, std::string_view) {});
    accel::DeepSpeedConfig config;
    if (!accepts([&] { config = accel::DeepSpeedConfig(std::string(text_of(input))); })) return;
    require(config.tree().is_map(), "a configuration is a map");
    accepts([&] { accel::DeepSpeedConfig(config).deepspeed_config_process({{"a.b", 1}}, false); });
    accel::DeepSpeedPlugin plugin{.hf_ds_config = config};
    if (accepts([&] { resolve(plugin); })) {
        const accel::DeepSpeedPlugin resolved = plugin;
        resolve(plugin);
        require(plugin.zero_stage == resolved.zero_stage &&
                    plugin.gradient_clipping == resolved.gradient_clipping &&
                    plugin.offload_optimizer_device == resolved.offload_optimizer_device &&
                    plugin.offload_param_device == resolved.offload_param_device,
                "a resolved plugin is not changed");
        accepts([&] {
            fill_deepspeed_config(plugin,
                                  {.batch_sizes = {2}, .has_model = true, .hidden_size = 4});
        });
    }
    const Tensor weight = ones({2}, {.requires_grad = true});
    accepts([&] { make_optimizer(config, accel::DummyOptim({weight})); });
    optim::AdamW adamw({weight});
    accepts([&] {
        const auto schedule = make_scheduler(config, adamw, {.total_num_steps = 5}, 1);
        for (int step = 0; step < 5; ++step) schedule->step();
    });
}

}  // namespace axle::tests
