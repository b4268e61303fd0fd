// DeepSpeedPlugin: the options of sharded training, with the names that DeepSpeed's ZeRO and
// Accelerate's DeepSpeedPlugin use. Also declares functions that select and resolve a plugin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accel/config/deepspeed_config.h"

namespace axle::accel {

struct AcceleratorOptions;

// Options of DeepSpeed's ZeRO. If no plugin is given and ACCELERATE_USE_DEEPSPEED is true, an
// Accelerator uses a plugin without options. An option that is not given (nullopt or empty) is read
// from the configuration, else from the environment variable named in its comment. If neither is
// set, it has its default. The Accelerator throws ValueError if an option or its variable
// contradicts the configuration. In Accelerator::options(), hf_ds_config also contains the given
// options for which DeepSpeed's configuration has a key, and the sections fp16 and bf16.
struct DeepSpeedPlugin {
    // DeepSpeed's configuration: the path of a JSON file, a map, or JSON text, also in base64
    // (ACCELERATE_DEEPSPEED_CONFIG_FILE). It must contain the section zero_optimization.
    std::optional<DeepSpeedConfig> hf_ds_config = {};
    // The number of micro-batches per update (ACCELERATE_GRADIENT_ACCUMULATION_STEPS). The default
    // is gradient_accumulation_steps of the Accelerator, over which this option takes precedence.
    std::optional<int> gradient_accumulation_steps = {};
    // The norm to which step() clips gradients; 0 turns clipping off (ACCELERATE_GRADIENT_CLIPPING,
    // a number, "none" or "auto"). Defaults to 1.0, or to 0 if hf_ds_config is set and does not
    // contain it.
    std::optional<double> gradient_clipping = {};
    // The stage, from 0 to 3 (ACCELERATE_DEEPSPEED_ZERO_STAGE). Stage 1 shards optimizer states,
    // stage 2 also shards gradients, and stage 3 also shards parameters. Defaults to 2, or to 0
    // (data parallel training) if hf_ds_config is set and does not contain it.
    std::optional<int> zero_stage = {};
    // Whether the smallest (true) or largest batch size of the prepared loaders replaces "auto" for
    // train_micro_batch_size_per_gpu.
    bool is_train_batch_min = true;
    // The device that stores optimizer states: "none" (the default), "cpu" (stages 2 and 3) or
    // "nvme" (stage 3) (ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE,
    // _OFFLOAD_OPTIMIZER_NVME_PATH). If this device or offload_param_device is not "none", the
    // parts of parameters, gradients and optimizer states are all outside of GPU memory.
    std::string offload_optimizer_device = {};
    std::string offload_optimizer_nvme_path = {};
    // The device that stores parameters in stage 3: "none" (the default), "cpu" or "nvme"
    // (ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE, _OFFLOAD_PARAM_NVME_PATH).
    std::string offload_param_device = {};
    std::string offload_param_nvme_path = {};
    // Whether models are constructed in shards (ACCELERATE_DEEPSPEED_ZERO3_INIT). Defaults to true
    // in stage 3. In other stages, true logs a warning and is changed to false.
    std::optional<bool> zero3_init_flag = {};
    // Whether get_state_dict() and save_model() convert floating weights of stage 3 to the dtype of
    // the mixed precision (false by default; bf16 for fp8;
    // ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL). If false, the weights keep their dtypes,
    // whereas Accelerate throws an exception.
    std::optional<bool> zero3_save_16bit_model = {};
    // The types of modules that stage 3 gathers as a whole, such as "MixtralSparseMoeBlock"
    // (ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES, a comma-separated list).
    std::vector<std::string> transformer_moe_cls_names = {};
    // Whether MS-AMP computes in fp8 (ACCELERATE_FP8_BACKEND is MSAMP), and its level, "O1" or "O2"
    // (ACCELERATE_FP8_OPT_LEVEL). Not implemented.
    std::optional<bool> enable_msamp = {};
    std::string msamp_opt_level = {};

    bool is_zero3_init_enabled() const {
        return zero3_init_flag.value_or(hf_ds_config && hf_ds_config->is_zero3());
    }
};

// Returns the norm to which step() clips gradients, or nullopt if it does not clip. The plugin must
// be resolved.
std::optional<double> gradient_clipping_of(const DeepSpeedPlugin& plugin);

// Returns a plugin of deepspeed_plugins. Throws ValueError with a list of the names if the plugin
// does not exist.
const DeepSpeedPlugin& get_deepspeed_plugin(const AcceleratorOptions& options,
                                            std::string_view name);
// Copies the plugin with this name to deepspeed_plugin, the active plugin. Throws ValueError if no
// plugin has this name.
void select_deepspeed_plugin(AcceleratorOptions& options, std::string_view name);

// Private to accel: reads options that are not set from the configuration and the environment, and
// merges all options into hf_ds_config. Throws ValueError for invalid or contradictory options,
// NotImplementedError for MS-AMP in stage 3, and the errors of DeepSpeedConfig for
// ACCELERATE_DEEPSPEED_CONFIG_FILE.
void resolve(DeepSpeedPlugin& plugin);

}  // namespace axle::accel
