// Private to tools: predicts memory, traffic and time of the meshes that a number of processes can
// form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axle::launcher {

// The numbers that a plan needs about a model. A token is one position of a sequence.
struct ModelCosts {
    struct Piece {
        std::int64_t parameters = 0;
        double flops = 0;                   // operations of a forward pass of one token
        std::int64_t activation_bytes = 0;  // bytes that one token stores for backward, in float32
    };
    std::vector<Piece> pieces;
    std::int64_t parameters = 0;  // number of parameters; tied parameters count once
    std::int64_t width = 0;       // width of the activation between two pieces
};
// Returns the costs of the model in a config.json of gpt2, llama or bert, for sequences of `time`
// tokens. Throws FileError for other files.
ModelCosts model_costs(const std::string& config, std::int64_t time);

struct PlanOptions {
    int num_processes = 1;
    std::int64_t memory = 0;           // bytes of one process
    std::int64_t batch = 0, time = 0;  // rows of the batch of all processes, and tokens of a row
    double flops = 0, link = 0;        // operations and bytes per second of one process
};

// A way to train: `replicas` pipelines of `stages` stages each.
struct Plan {
    int stages = 1, replicas = 1;
    std::string method;  // the schedule, or how the parameters are sharded
    int micro_batches = 1;
    std::int64_t memory = 0;  // bytes of the process that needs most
    std::int64_t bytes = 0;   // bytes that one process sends in a step
    double seconds = 0;       // duration of a step
    double idle_share = 0;    // share of the time in which processes of a pipeline compute nothing
};

// Returns the plans that fit into the memory, fastest first. The number of stages divides the
// number of processes, and the number of replicas divides the batch. A micro-batch has one row. The
// memory includes parameters, gradients and the moments of Adam in float32, and activations. The
// time counts only the multiplications of linear layers and attention, and the messages; reductions
// do not overlap with computation.
std::vector<Plan> plans(const ModelCosts& model, const PlanOptions& options);

}  // namespace axle::launcher
