// Options for engines other than data parallel training, with the names, defaults and checks of
// Accelerate. A plugin has no effect with one process, or if its options turn it off. If a plugin
// needs an engine that Axle does not implement, the Accelerator's constructor throws
// NotImplementedError.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "accel/config/deepspeed_plugin.h"
#include "accel/config/fsdp_plugin.h"
#include "accel/config/parallelism_config.h"
#include "kernels/error.h"
#include "nn/module.h"
#include "nn/pieces.h"

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

// Options of pipeline parallel training (dist/pipeline/pipeline.h). The models are divided into
// pp_degree stages, and the processes with the same stage average their gradients: there are
// num_processes / (tp_degree * pp_degree) of them. Accelerator::pipeline_step() runs a step.
// ACCELERATE_USE_MEGATRON_LM=true requests this plugin too. Options that are not set are read from
// MEGATRON_LM_TP_DEGREE, MEGATRON_LM_PP_DEGREE and so on.
struct MegatronLMPlugin {
    std::optional<int> tp_degree = {};  // 1 by default; other values are not implemented
    std::optional<int> pp_degree = {};  // 1 by default
    // The number of micro-batches of a step (default: 1). A process reads batches of
    // num_micro_batches times the rows of a micro-batch.
    std::optional<int> num_micro_batches = {};
    // The norm to which steps of optimizers clip the gradients of all stages (default: 1); 0 turns
    // clipping off.
    std::optional<double> gradient_clipping = {};
    std::optional<bool> sequence_parallelism = {};  // must be false: not implemented
    // Whether backward computes the activations of each block again (default: false).
    std::optional<bool> recompute_activations = {};
    std::optional<bool> use_distributed_optimizer = {};  // must be false: not implemented
    // The number of layers of a stage of the interleaved schedule. Processes then have several
    // stages, and the layers of all stages together must be the layers of the model.
    std::optional<int> num_layers_per_virtual_pipeline_stage = {};

    // --- extensions of Accelerate
    // "gpipe", "1f1b" (default), "interleaved" or "zero_bubble" (dist/pipeline/schedule.h).
    // "interleaved" is the default with num_layers_per_virtual_pipeline_stage.
    std::string schedule = {};
    // The average of the losses of micro-batches: "rows", "equal" or "tokens" (MicroBatchAverage).
    std::string average = "rows";
    // The number of pieces of each stage; balanced if empty.
    std::vector<int> stage_sizes = {};
    // Returns the pieces of a model; nn::pieces_of() by default.
    std::function<std::vector<nn::Piece>(nn::Module&)> pieces = {};
};

// Deprecated options of tensor parallel training: use a ParallelismConfig with this tp_size.
struct TorchTensorParallelPlugin {
    int tp_size = 1;
};

}  // namespace axle::accel

namespace axle {
using accel::NotImplementedError;
}  // namespace axle
