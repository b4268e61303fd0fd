// Options for engines other than data parallel training, with the names, defaults and checks of
// Accelerate. With one process, a plugin divides nothing, but its other options, such as gradient
// clipping, still apply. If a plugin needs an engine that Axle does not implement, the
// Accelerator's constructor throws NotImplementedError.
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

// Thrown for features that Axle does not implement, such as some options of Accelerate.
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
// pp_degree stages, and the processes with the same stage and the same slices of its layers average
// their gradients: there are num_processes / (tp_degree * pp_degree) of them.
// Accelerator::pipeline_step() runs a step. ACCELERATE_USE_MEGATRON_LM=true requests this plugin
// too. Options that are not set are read from MEGATRON_LM_TP_DEGREE, MEGATRON_LM_PP_DEGREE and so
// on.
//
// The processes are a mesh of pp_degree stages, replicas, and tp_degree slices of each layer
// (dist/tensor_parallel/); the ranks of the slices are consecutive.
struct MegatronLMPlugin {
    std::optional<int> tp_degree = {};  // 1 by default
    std::optional<int> pp_degree = {};  // 1 by default
    // The number of micro-batches of a step (default: 1). A process reads batches of
    // num_micro_batches times the rows of a micro-batch.
    std::optional<int> num_micro_batches = {};
    // The norm to which steps of optimizers clip the gradients of all stages (default: 1); 0 turns
    // clipping off.
    std::optional<double> gradient_clipping = {};
    // Whether norms and dropout work on parts of the sequence (default: false); see
    // dist::TensorParallelOptions. Has no effect if tp_degree is 1.
    std::optional<bool> sequence_parallelism = {};
    // Whether backward computes activations again (default: false). recompute_granularity must be
    // "full" (default). With recompute_method "uniform" (default), each recompute_num_layers pieces
    // (default: 1) of a stage store only their input; with "block", each of the first
    // recompute_num_layers pieces of a stage stores only its input, and the other pieces store all
    // activations.
    std::optional<bool> recompute_activations = {};
    std::string recompute_granularity = {};
    std::string recompute_method = {};
    std::optional<int> recompute_num_layers = {};
    // Whether replicas divide the states of optimizers (ZeRO-1; default: false).
    std::optional<bool> use_distributed_optimizer = {};
    // The number of layers of a stage of the interleaved schedule. Processes then have several
    // stages, and the layers of all stages together must be the layers of the model.
    std::optional<int> num_layers_per_virtual_pipeline_stage = {};
    // The number of layers of the last stage. The other layers are divided evenly among the other
    // stages.
    std::optional<int> decoder_last_pipeline_num_layers = {};
    // Must be 1: not implemented. Read from MEGATRON_LM_CONTEXT_PARALLEL_SIZE and
    // MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE if they are not set. (Accelerate's default of
    // context_parallel_size is 2.)
    std::optional<int> context_parallel_size = {};
    std::optional<int> expert_model_parallel_size = {};

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
