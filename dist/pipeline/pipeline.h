// Pipeline: trains a model whose layers are divided among the processes of a group.
//
//     dist::Pipeline pipeline(model, nn::pieces_of(model), group, {.micro_batches = 8});
//     optim::AdamW optimizer(model.parameters());
//     Tensor loss = pipeline.step(batch, nn::label_loss);   // forward and backward of the batch
//     pipeline.clip_grad_norm_(1.0);
//     optimizer.step();                                     // updates the stages of this rank
//     optimizer.zero_grad();
//
// Each rank has one or more stages: consecutive pieces of the model (nn/pieces.h). A step divides
// the batch into micro-batches. They pass through the stages one after another, so that all ranks
// compute at the same time. The schedule determines the order (schedule.h). Losses and gradients
// are the same as on one process, up to rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/owning_ptr.h"
#include "core/tensor.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"
#include "dist/pipeline/schedule.h"
#include "dist/sharding/full_state.h"
#include "nn/generation/generate.h"
#include "nn/module.h"
#include "nn/pieces.h"
#include "optim/optimizer.h"

namespace axle::dist {

// The average of the losses of all micro-batches on all data parallel ranks. Each loss is a mean.
enum class MicroBatchAverage : std::uint8_t {
    rows,   // weighted by the numbers of rows, as in a mean over all rows of the batch
    equal,  // the mean of the micro-batches, as gradient accumulation computes it
    tokens  // weighted by the numbers of labels that are not -100
};

// The parts of a stage that are recomputed in backward, to store fewer activations.
enum class Recompute : std::uint8_t {
    none,
    pieces,  // stores the inputs of groups of recompute_pieces pieces
    // Stores the inputs of the first recompute_pieces pieces of each stage, and all activations of
    // the other pieces.
    first_pieces,
    stages  // stores the inputs of stages
};

struct PipelineOptions {
    ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
    int micro_batches = 1;
    int chunks = 1;  // stages per rank, for ScheduleKind::interleaved
    // The number of pieces of each stage. If empty, the costs of the stages are balanced.
    std::vector<int> stage_sizes = {};
    MicroBatchAverage average = MicroBatchAverage::rows;
    std::string labels = "labels";  // the key of the labels in a batch, for `tokens`
    Recompute recompute = Recompute::none;
    int recompute_pieces = 1;
    // The ranks with the same stages and other batches, or nullptr. Gradients and losses are
    // averaged over these ranks.
    std::shared_ptr<ProcessGroup> data_parallel = {};
    // Whether several data parallel ranks divide the states of optimizers (ZeRO-1). Each rank then
    // updates its part of the parameters, and a step gathers them. The parameters are sharded
    // leaves (core/autograd/local_part.h), and have no elements after the Pipeline is destroyed.
    bool shard_optimizer = false;
    // A schedule of training steps that replaces `schedule`, `micro_batches` and `chunks`.
    std::optional<Schedule> custom_schedule = {};
};

// Numbers that describe the calls of this rank.
struct PipelineCounters {
    std::int64_t messages = 0, bytes = 0;  // activations and gradients that were sent
    std::int64_t agreed_shapes = 0;        // shapes of inputs that were received
    std::int64_t tied_sums = 0;            // gradients of tied parameters that were added
    // The maximum number of micro-batches whose activations were stored at once (a micro-batch on
    // two stages counts twice), and the maximum size in bytes of the tensors for queued gradients
    // of weights.
    std::int64_t peak_stored = 0, peak_queued_bytes = 0;
};

// Computes the loss of a micro-batch, a 0-d tensor, from the output of the last piece. If the
// function is nn::label_loss and the last piece is an nn::HeadPiece (nn/models/pieces.h), the piece
// computes the loss. Most models then do not store all logits.
using PipelineLoss = std::function<Tensor(const Tensor& output, const Tree& batch)>;

// Trains the stages of this rank. All ranks must construct the Pipeline with the same model and
// options, and must call the same functions together. The model must outlive the object and must
// not be moved. Not thread-safe.
//
// An error that one rank finds before the first action is thrown on all ranks of the pipeline.
// After a later error, the other ranks wait until the failed rank leaves the job, at most for the
// timeout of the group, and throw CommError.
//
// The model may be divided among tensor parallel ranks (dist/tensor_parallel/). Each of these ranks
// is then in its own pipeline. These pipelines must run the same steps with the same batches, and
// the generators of their ranks 0 must have the same seed.
class Pipeline {
  public:
    // Frees the parameters that no stage of this rank uses: they move to the meta device, keep
    // their shapes and get no gradients. All copies of a tensor that several ranks use get the
    // values of the first of these ranks. All ranks of data_parallel get the values of its rank 0,
    // except for slices of expert parallelism.
    //
    // Errors are thrown on all ranks. Throws ValueError for invalid options, and if the ranks have
    // different schedules or stages. Throws UsageError if a parameter to free has a gradient. Also
    // throws the errors of make_schedule(), simulate() and StagePlan.
    Pipeline(nn::Module& model, std::vector<nn::Piece> pieces, std::shared_ptr<ProcessGroup> group,
             PipelineOptions options = {});
    ~Pipeline();
    Pipeline(const Pipeline&) = delete;
    Pipeline& operator=(const Pipeline&) = delete;

    // Runs the forward and backward pass, and adds the gradients to the parameters of this rank.
    // Returns the average loss, a 0-d f64 tensor, on all ranks. All ranks of the pipeline must pass
    // the same batch; the last stage calls `loss`. The rows of the batch are divided into
    // micro-batches as evenly as possible. The gradients, but not the returned loss, are multiplied
    // by gradient_scale.
    //
    // Throws ShapeError if a tensor of the batch has no rows (0-d) or another number of rows, if a
    // loss does not have one element, or if micro-batches of equal shapes have activations of
    // different shapes. Throws ValueError if the batch has no tensor, fewer rows than
    // micro-batches, or no labels for the average over tokens. Also throws ValueError if dtypes or
    // shapes of the batches, or the numbers of steps, differ between ranks.
    Tensor step(const Tree& batch, const PipelineLoss& loss, double gradient_scale = 1);
    // Runs a step for the given micro-batches. Their shapes may differ. Throws ValueError if their
    // number differs from the schedule.
    Tensor step(const std::vector<Tree>& micro_batches, const PipelineLoss& loss,
                double gradient_scale = 1);
    // Computes the same average loss without gradients. The number of micro-batches is min(rows,
    // micro_batches). Call model.eval() first, because the mode of the modules is not changed.
    // evaluate() and forward() throw the errors of step(), but need only one row.
    Tensor evaluate(const Tree& batch, const PipelineLoss& loss);
    // Returns the output of the last piece for the batch, without gradients. If gather_output is
    // false, ranks without the last stage get an undefined tensor.
    Tensor forward(const Tree& batch, bool gather_output = true);
    // Appends `count` tokens to `ids` with nn::generate(), which documents the arguments and the
    // errors. Returns the same sequence on all ranks.
    std::vector<std::int64_t> generate(std::int64_t longest, std::vector<std::int64_t> ids,
                                       std::int64_t count, nn::GenerateOptions options = {});

    // Returns the parameters of this rank's stages.
    std::vector<Tensor> parameters() const;
    // Clips the gradients of all stages by their common norm, as optim::clip_grad_norm_() does.
    // Tied parameters are counted once. Returns the norm, a 0-d f64 tensor with the same bits on
    // all ranks of the pipeline. Throws ValueError for an invalid norm_type.
    Tensor clip_grad_norm_(double max_norm, double norm_type = 2);

    // Returns the state of the whole model with the names that one process has. The state is
    // returned on rank 0 or on all ranks of the pipeline (FullStateOptions). Slices and shards are
    // gathered; for this, each rank needs memory for its whole stages. All ranks of the job must
    // call full_state_dict().
    nn::StateDict full_state_dict(const FullStateOptions& options = {}) const;
    // Loads this rank's tensors from the state of the whole model. Throws ValueError if names are
    // missing or unexpected, and the errors of Module::load_state_dict(). Buffers, and all names
    // but one of a tied parameter, may be missing.
    void load_state_dict(const nn::StateDict& state);
    // Return and load the state of an optimizer over the parameters of the whole model, like the
    // functions for the model. load_state_dict() throws IndexError without "state", ValueError if
    // one of its keys is not a number, and the errors of Optimizer::load_state_dict().
    Tree full_state_dict(optim::Optimizer& optimizer, const FullStateOptions& options = {}) const;
    void load_state_dict(optim::Optimizer& optimizer, const Tree& state) const;

    // Return the schedule of training steps, and the counters of all calls so far.
    const Schedule& schedule() const;
    const PipelineCounters& counters() const;
    // The number of steps. Random numbers are computed from it: each piece draws numbers that
    // depend only on the seed of the default generator of rank 0, the step, the micro-batch and the
    // index of the piece. Therefore the numbers do not depend on the number of stages.
    std::int64_t steps() const;
    void set_steps(std::int64_t steps);

    struct Impl;

  private:
    OwningPtr<Impl> impl_;
};

}  // namespace axle::dist
