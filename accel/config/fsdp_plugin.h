// FullyShardedDataParallelPlugin: the options of fully sharded data parallel training (FSDP).
//
//     Accelerator accelerator({.fsdp_plugin = {{.fsdp_version = 2,
//                                               .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"}}});
//
// dist/sharding/sharded_data_parallel.h describes how the model is sharded. Axle has one engine for
// both versions of FSDP. The versions differ in the names and defaults of options, and in the
// modules that form units.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dist/sharding/full_state.h"
#include "kernels/dtype.h"

namespace axle::nn {
class Module;
}

namespace axle::accel {

// The dtypes of sharded training. A dtype that is not set is the dtype of the model, except
// reduce_dtype: it is f64 for f64 parameters, otherwise f32.
struct MixedPrecisionPolicy {
    std::optional<DType> param_dtype = {};   // gathered parameters, in which the model computes
    std::optional<DType> reduce_dtype = {};  // the reduction of gradients
    std::optional<DType> buffer_dtype = {};  // floating buffers, for version 1 only
    // Floating outputs of the model, for version 2 only. If it differs from param_dtype, it takes
    // precedence over convert_outputs_to_fp32.
    std::optional<DType> output_dtype = {};

    bool operator==(const MixedPrecisionPolicy&) const = default;
};

// A function that returns whether a submodule of the model is a unit.
using WrapPolicy = std::function<bool(const nn::Module&)>;

// The options of FSDP. If no plugin is given and ACCELERATE_USE_FSDP is true, the Accelerator
// creates one. An option that is not set (an empty optional or string, or std::monostate) is read
// from the environment variable named in its comment. If neither is set, the option has its
// default. Accelerator::options() contains the result. Case is ignored in the names of values, such
// as strategies. With one process there is nothing to shard. The Accelerator throws ValueError for
// values that are invalid or not supported by the version, and logs a warning for some options that
// have no effect.
struct FullyShardedDataParallelPlugin {
    // The version, 1 or 2 (FSDP_VERSION; default 1). With version 2, the input embedding is a unit
    // unless it is tied. If auto_wrap_policy selects units, the last norm after them and an untied
    // Linear output head form another unit. This unit stays gathered between forward and backward.
    std::optional<int> fsdp_version = {};
    // The strategy for version 1 only (FSDP_SHARDING_STRATEGY). Deprecated: use
    // reshard_after_forward, which accepts the same strategies. The Accelerator throws ValueError
    // if reshard_after_forward is set to another strategy. With version 2, it throws ValueError if
    // only this option is set, and otherwise ignores it with a warning.
    std::string sharding_strategy = {};
    // The sharding strategy. Version 2: whether the gathered parameters of a unit are freed after
    // its forward pass (true by default). Version 1: "FULL_SHARD" (the default), "SHARD_GRAD_OP",
    // "NO_SHARD", "HYBRID_SHARD" or "HYBRID_SHARD_ZERO2", or its number from "1" to "5". NO_SHARD
    // is data parallel training, the same as without a plugin. The HYBRID_ strategies shard within
    // a machine. (FSDP_RESHARD_AFTER_FORWARD)
    std::variant<std::monostate, bool, std::string> reshard_after_forward = {};
    // The prefetching in backward, for version 1 only: "BACKWARD_PRE", "BACKWARD_POST", or
    // "NO_PREFETCH" (the default). Version 2 always prefetches as BACKWARD_PRE does.
    // (FSDP_BACKWARD_PREFETCH)
    std::string backward_prefetch = {};
    // Whether a unit begins to gather the next unit in the forward pass, for version 1 only (false
    // by default). Version 2 always does this, and throws ValueError if the option is set.
    // (FSDP_FORWARD_PREFETCH)
    std::optional<bool> forward_prefetch = {};
    // The dtypes of mixed precision: a policy, a name ("bf16", "fp16", "fp32", or "fp8", which
    // means bf16), or a map. A map assigns f32, f16 or bf16 to every field of its version. If not
    // set, mixed_precision determines the policy.
    std::variant<std::monostate, std::string, std::map<std::string, DType>, MixedPrecisionPolicy>
        mixed_precision_policy = {};
    // The modules that form units: "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP" (the
    // default: the model is one unit), or a function. (FSDP_AUTO_WRAP_POLICY)
    std::variant<std::string, WrapPolicy> auto_wrap_policy = {};
    // The types of the modules that TRANSFORMER_BASED_WRAP makes units; by default
    // Module::no_split_modules(). The variable contains a comma-separated list.
    // (FSDP_TRANSFORMER_CLS_TO_WRAP)
    std::optional<std::vector<std::string>> transformer_cls_names_to_wrap = {};
    // The smallest number of parameters of a unit with SIZE_BASED_WRAP. 0, the default, means
    // NO_WRAP. (FSDP_MIN_NUM_PARAMS)
    std::optional<std::int64_t> min_num_params = {};
    // Whether parameters, gradients and optimizer states are in host memory between uses (false by
    // default; FSDP_OFFLOAD_PARAMS).
    std::optional<bool> cpu_offload = {};
    // The modules that are not sharded: their names, or a regular expression that matches their
    // whole names (FSDP_IGNORED_MODULES).
    std::variant<std::monostate, std::string, std::vector<std::string>> ignored_modules = {};
    // The type of checkpoints, as a name or number: "FULL_STATE_DICT" or "1" (the default of
    // version 1), "LOCAL_STATE_DICT" or "2" (version 1 only; Axle writes a FULL_STATE_DICT),
    // "SHARDED_STATE_DICT" or "3" (the default of version 2). (FSDP_STATE_DICT_TYPE)
    std::string state_dict_type = {};
    // Options that a program can pass to dist::full_state_dict() (state_dict_config_of()). The
    // functions of the Accelerator do not use them.
    std::optional<dist::FullStateOptions> state_dict_config = {};
    std::optional<dist::FullStateOptions> optim_state_dict_config = {};
    bool limit_all_gathers = true;  // limits the memory of gathered units (ShardingOptions)
    // An option without effect, because parameters always keep their names and shapes.
    // (FSDP_USE_ORIG_PARAMS)
    std::optional<bool> use_orig_params = {};
    // Initializes modules that were constructed without memory (dist::ShardingOptions).
    std::function<void(nn::Module&)> param_init_fn = {};
    // Whether all processes start with the values of rank 0, for version 1 only. If false, the
    // default, the values must be equal on all processes. Version 2 always uses the values of rank
    // 0. (FSDP_SYNC_MODULE_STATES)
    std::optional<bool> sync_module_states = {};
    // Whether only rank 0 has the values of the model (false by default). True implies
    // sync_module_states. (FSDP_CPU_RAM_EFFICIENT_LOADING)
    std::optional<bool> cpu_ram_efficient_loading = {};
    // Whether units, except the unit of the model, recompute their activations in backward (false
    // by default; nn::Module::set_checkpointing; FSDP_ACTIVATION_CHECKPOINTING).
    std::optional<bool> activation_checkpointing = {};
    // An option without effect: the inputs of units stay on the device (false by default). True
    // needs version 2 and activation_checkpointing, else the Accelerator throws ValueError.
    // (FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD)
    std::optional<bool> activation_checkpointing_offload = {};

    // Sets the type of checkpoints in this plugin. Does not change an Accelerator that was created
    // with a copy of the plugin; for one checkpoint, use SaveStateOptions::state_dict_type. An
    // empty type is read from FSDP_STATE_DICT_TYPE if state_dict_type is empty. Throws ValueError
    // for an unknown type, and for LOCAL_STATE_DICT with version 2.
    void set_state_dict_type(const std::string& type = {});
    // Sets mixed_precision_policy to `precision` or `dtype`, in the fields of this plugin's
    // version, if the policy is not set or override_policy is true. Otherwise converts a name or a
    // map to a policy and checks it. If buffer_autocast is true, buffers are f32 (version 1).
    // Throws ValueError for unknown names, for incomplete maps, for a field of the other version,
    // and for dtypes other than f32, f16 and bf16 (in a MixedPrecisionPolicy, that are not
    // floating).
    void set_mixed_precision(const std::string& precision, bool buffer_autocast = false,
                             bool override_policy = false);
    void set_mixed_precision(DType dtype, bool buffer_autocast = false,
                             bool override_policy = false);
    // Sets transformer_cls_names_to_wrap to model.no_split_modules() if TRANSFORMER_BASED_WRAP
    // needs it, and replaces SIZE_BASED_WRAP without min_num_params by NO_WRAP. Throws ValueError
    // if the model has no module of a type in the list.
    void set_auto_wrap_policy(nn::Module& model);

    // The following functions need a plugin whose options the Accelerator has resolved.

    // Returns the name of the strategy. In version 2 it is FULL_SHARD if reshard_after_forward is
    // true, otherwise SHARD_GRAD_OP.
    std::string strategy() const;
    // Returns whether the model is sharded: false only for NO_SHARD.
    bool shards() const { return strategy() != "NO_SHARD"; }
};

// Return the accepted names of options in the order of their numbers, which start at 1. An
// auto_wrap_policy has no number.
const std::vector<std::string>& fsdp_strategies();
const std::vector<std::string>& fsdp_backward_prefetches();
const std::vector<std::string>& fsdp_auto_wrap_policies();
const std::vector<std::string>& fsdp_state_dict_types();

// Returns state_dict_config, or optim_state_dict_config if `of_optimizer`. By default, tensors are
// copied to the CPU, and only rank 0 gets the tensors of a FULL_STATE_DICT. With one process,
// tensors always stay on their devices.
dist::FullStateOptions state_dict_config_of(const FullyShardedDataParallelPlugin& plugin,
                                            int num_processes, bool of_optimizer = false);

}  // namespace axle::accel
