// Options for engines other than data parallel training, with the names, defaults and checks of
// Accelerate. With one process, a plugin divides nothing, but its other options, such as gradient
// clipping, still apply. If a plugin needs an engine that Axle does not implement, the
// Accelerator's constructor throws NotImplementedError. Also declares this error, and
// TorchDynamoPlugin, which has no effect.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accel/config/deepspeed_plugin.h"
#include "accel/config/fsdp_plugin.h"
#include "accel/config/parallelism_config.h"
#include "accel/megatron/megatron_plugin.h"
#include "kernels/error.h"

namespace axle::accel {

// Thrown for features that Axle does not implement, such as some options of Accelerate.
struct NotImplementedError : UsageError {
    using UsageError::UsageError;
};

// Options of torch.compile. They are checked (ValueError) and have no effect; setting a backend
// logs a warning. Names are case-insensitive.
struct TorchDynamoPlugin {
    // The backend, such as "inductor" or "cudagraphs" (known_dynamo_backends()). If empty, it is
    // read from ACCELERATE_DYNAMO_BACKEND; the default is "no".
    std::string backend = {};
    // The mode: "default", "reduce-overhead" or "max-autotune". If empty, it is read from
    // ACCELERATE_DYNAMO_MODE; the default is "default".
    std::string mode = {};
    std::optional<bool> fullgraph = {};  // defaults to ACCELERATE_DYNAMO_USE_FULLGRAPH, else false
    std::optional<bool> dynamic = {};    // defaults to ACCELERATE_DYNAMO_USE_DYNAMIC
    bool disable = false;
    // Whether blocks are compiled separately. Defaults to
    // ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION, else false.
    std::optional<bool> use_regional_compilation = {};

    bool compiles() const { return !disable && !backend.empty() && backend != "no"; }
};

// Returns the names that TorchDynamoPlugin::backend accepts.
const std::vector<std::string>& known_dynamo_backends();

// Deprecated options of tensor parallel training: use a ParallelismConfig with this tp_size.
struct TorchTensorParallelPlugin {
    int tp_size = 1;
};

}  // namespace axle::accel

namespace axle {
using accel::NotImplementedError;
}  // namespace axle
