// What an Accelerator may be asked for beside data parallel training. The names, defaults and
// checks are Accelerate's. Where there is nothing to shard, or a plugin says so itself, there is
// nothing to do; what asks for an engine that isn't there is a NotImplementedError at construction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/error.h"

namespace axle::accel {

// Known, documented, and not there yet.
struct NotImplementedError : UsageError {
    using UsageError::UsageError;
};

// torch.compile's options, checked. None changes Accelerator::compile(); a backend gets a warning.
struct TorchDynamoPlugin {
    // "inductor", "cudagraphs", ... (known_dynamo_backends()); empty: ACCELERATE_DYNAMO_BACKEND,
    // else "no".
    std::string backend = {};
    // "default", "reduce-overhead" or "max-autotune"; empty: ACCELERATE_DYNAMO_MODE.
    std::string mode = {};
    std::optional<bool> fullgraph = {};  // ACCELERATE_DYNAMO_USE_FULLGRAPH, else false
    std::optional<bool> dynamic = {};    // ACCELERATE_DYNAMO_USE_DYNAMIC
    bool disable = false;
    // ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION, else false
    std::optional<bool> use_regional_compilation = {};

    bool compiles() const { return !disable && !backend.empty() && backend != "no"; }
};

const std::vector<std::string>& known_dynamo_backends();

// The processes as a grid. ACCELERATE_USE_PARALLELISM_CONFIG=true makes one of PARALLELISM_CONFIG_*
// (DP_REPLICATE_SIZE, DP_SHARD_SIZE, TP_SIZE, CP_SIZE, SP_SIZE, CP_BACKEND, SP_BACKEND).
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

// ACCELERATE_USE_FSDP=true makes one of FSDP_VERSION, FSDP_SHARDING_STRATEGY and
// FSDP_OFFLOAD_PARAMS. A process alone has nothing to shard.
struct FullyShardedDataParallelPlugin {
    int fsdp_version = 1;
    // "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD" (each process has it all, as without a plugin),
    // "HYBRID_SHARD" or "HYBRID_SHARD_ZERO2"
    std::string sharding_strategy = "FULL_SHARD";
    bool cpu_offload = false;
};

// ACCELERATE_USE_DEEPSPEED=true makes one of ACCELERATE_DEEPSPEED_ZERO_STAGE,
// ACCELERATE_GRADIENT_CLIPPING and ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE and _PARAM_DEVICE.
struct DeepSpeedPlugin {
    // Of ZeRO; 0 is data parallel training, as without a plugin.
    int zero_stage = 2;
    std::optional<double> gradient_clipping = {};
    std::string offload_optimizer_device = "none";  // "none", "cpu" or "nvme"
    std::string offload_param_device = "none";
};

// Asked for by ACCELERATE_USE_MEGATRON_LM=true too.
struct MegatronLMPlugin {
    int tp_degree = 1;
    int pp_degree = 1;
    int num_micro_batches = 1;
    bool sequence_parallelism = false;
};

// Deprecated: a ParallelismConfig with this tp_size.
struct TorchTensorParallelPlugin {
    int tp_size = 1;
};

}  // namespace axle::accel

namespace axle {
using accel::NotImplementedError;
}  // namespace axle
