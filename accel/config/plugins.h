// Options for engines other than data parallel training, with the names, defaults and checks of
// Accelerate. A plugin has no effect with one process, or if its options turn it off. If a plugin
// needs an engine that Axle does not implement, the Accelerator's constructor throws
// NotImplementedError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accel/config/deepspeed_plugin.h"
#include "accel/config/fsdp_plugin.h"
#include "accel/config/parallelism_config.h"
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
