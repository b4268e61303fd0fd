// Options for engines other than data parallel training, with the names, defaults and checks of
// Accelerate. A plugin has no effect if there is nothing to shard, or if its options turn it off.
// If a plugin needs an engine that Axle does not implement, the Accelerator's constructor throws
// NotImplementedError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/error.h"

namespace axle::accel {

// Thrown for documented features of Accelerate that are not implemented yet.
struct NotImplementedError : UsageError {
    using UsageError::UsageError;
};

// Options of torch.compile. They are checked and have no effect; setting a backend logs a warning.
struct TorchDynamoPlugin {
    // The backend, such as "inductor" or "cudagraphs" (known_dynamo_backends()). If empty, it is
    // read from ACCELERATE_DYNAMO_BACKEND; the default is "no".
    std::string backend = {};
    // The mode: "default", "reduce-overhead" or "max-autotune". If empty, it is read from
    // ACCELERATE_DYNAMO_MODE.
    std::string mode = {};
    std::optional<bool> fullgraph = {};  // defaults to ACCELERATE_DYNAMO_USE_FULLGRAPH, else false
    std::optional<bool> dynamic = {};    // defaults to ACCELERATE_DYNAMO_USE_DYNAMIC
    bool disable = false;
    // Defaults to ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION, else false.
    std::optional<bool> use_regional_compilation = {};

    bool compiles() const { return !disable && !backend.empty() && backend != "no"; }
};

// Returns the names that TorchDynamoPlugin::backend accepts.
const std::vector<std::string>& known_dynamo_backends();

// The sizes of a mesh of processes. If no ParallelismConfig is given and
// ACCELERATE_USE_PARALLELISM_CONFIG is true, the sizes are read from the variables
// PARALLELISM_CONFIG_* (DP_REPLICATE_SIZE, DP_SHARD_SIZE, TP_SIZE, CP_SIZE, SP_SIZE, CP_BACKEND,
// SP_BACKEND).
struct ParallelismConfig {
    int dp_replicate_size = 1;
    int dp_shard_size = 1;
    int tp_size = 1;
    int cp_size = 1;
    int sp_size = 1;
    std::string cp_backend = "torch";
    std::string sp_backend = "deepspeed";

    int total_size() const {
        return dp_replicate_size * dp_shard_size * tp_size * cp_size * sp_size;
    }
    int data_parallel_size() const { return dp_replicate_size * dp_shard_size; }
};

// Options of fully sharded data parallel training. If no plugin is given and ACCELERATE_USE_FSDP is
// true, the options are read from FSDP_VERSION, FSDP_SHARDING_STRATEGY and FSDP_OFFLOAD_PARAMS.
// With one process there is nothing to shard.
struct FullyShardedDataParallelPlugin {
    int fsdp_version = 1;
    // The strategy: "FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", or
    // "NO_SHARD", which is data parallel training as without a plugin.
    std::string sharding_strategy = "FULL_SHARD";
    bool cpu_offload = false;
};

// Options of DeepSpeed's ZeRO. If no plugin is given and ACCELERATE_USE_DEEPSPEED is true, the
// options are read from ACCELERATE_DEEPSPEED_ZERO_STAGE, ACCELERATE_GRADIENT_CLIPPING,
// ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE and ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE.
struct DeepSpeedPlugin {
    // The ZeRO stage, from 0 to 3. Stage 0 is data parallel training, as without a plugin.
    int zero_stage = 2;
    std::optional<double> gradient_clipping = {};
    std::string offload_optimizer_device = "none";  // "none", "cpu" or "nvme"
    std::string offload_param_device = "none";
};

// Options of tensor and pipeline parallel training. ACCELERATE_USE_MEGATRON_LM=true requests this
// plugin too.
struct MegatronLMPlugin {
    int tp_degree = 1;
    int pp_degree = 1;
    int num_micro_batches = 1;
    bool sequence_parallelism = false;
};

// Deprecated options of tensor parallel training: use a ParallelismConfig with this tp_size.
struct TorchTensorParallelPlugin {
    int tp_size = 1;
};

}  // namespace axle::accel

namespace axle {
using accel::NotImplementedError;
}  // namespace axle
