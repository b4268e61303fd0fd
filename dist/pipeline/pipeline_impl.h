// Private to dist: the members of Pipeline, and the execution of a schedule.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/deferred.h"
#include "dist/group/process_group.h"
#include "dist/pipeline/pipeline.h"
#include "dist/pipeline/stage_plan.h"
#include "dist/pipeline/stage_shards.h"

namespace axle::nn {
struct HeadPiece;
}  // namespace axle::nn

namespace axle::dist {

// The dtype and shape of an activation.
struct ActivationType {
    DType dtype = f32;
    Shape shape;
    friend bool operator==(const ActivationType&, const ActivationType&) = default;
};

// The kinds of messages. tag_of() combines a kind and a number, such as the stage, into the tag of
// a message.
enum class MessageKind : std::uint8_t { activation, activation_type, gradient, tied, state };
inline int tag_of(MessageKind kind, int number) { return number * 5 + static_cast<int>(kind); }

// The results of the last stage.
struct PipelineResult {
    double loss = 0;                   // the sum of the losses times their factors
    std::vector<Tensor> outputs = {};  // indexed by micro-batch
};

struct Pipeline::Impl {
    Impl(nn::Module& model, std::vector<nn::Piece> pieces, std::shared_ptr<ProcessGroup> group,
         PipelineOptions options);

    int rank() const { return group->rank(); }
    bool is_last() const { return rank() == schedule.rank_of(schedule.stages() - 1); }
    Device device() const;
    // Returns text that identifies the shapes of a micro-batch. Micro-batches with equal texts have
    // activations of equal shapes and dtypes.
    std::string signature_of(const Tree& batch) const;
    // The micro-batches of a call, and the schedule that executes them.
    struct Call {
        std::vector<Tree> batches;
        Schedule forwards;  // used unless the call trains
        std::uint64_t seed = 0;
    };
    // Returns the micro-batches that split() returns, and the seed of rank 0. Throws the errors of
    // one rank on all ranks. Throws ValueError on all ranks if dtypes or shapes of their
    // micro-batches, or their numbers of steps, differ.
    Call begin(const char* op, bool trains, const std::function<std::vector<Tree>()>& split);
    // Returns the batch as `count` micro-batches of consecutive rows. If allow_fewer is true, a
    // batch with fewer rows is divided into single rows.
    static std::vector<Tree> divide(const char* op, const Tree& batch, int count, bool allow_fewer);
    Tensor step(const std::function<std::vector<Tree>()>& split, const PipelineLoss& loss,
                double gradient_scale);
    PipelineResult run_forwards(const char* op, const Tree& batch, const PipelineLoss* loss);
    // Returns the factor of the loss of each micro-batch.
    std::vector<double> factors_of(const char* op, const std::vector<Tree>& batches) const;
    // Returns the sum of the last stage's loss over the data parallel ranks. All ranks get the sum.
    Tensor total(double loss) const;
    void share_initial_values();
    void sum_tied_gradients();
    void average_gradients();

    nn::Module* model;
    std::vector<nn::Piece> pieces;
    std::shared_ptr<ProcessGroup> group;
    PipelineOptions options;
    Schedule schedule;
    std::unique_ptr<StagePlan> plan;
    std::unique_ptr<StageShards> shards;  // nullptr unless ranks divide the optimizer states
    PipelineCounters counters;
    std::int64_t steps = 0;
    // The types of the inputs, by stage and signature of the micro-batch.
    std::map<std::pair<int, std::string>, ActivationType> types;
};

// Executes the actions of this rank.
class PipelineRun {
  public:
    // Prepares to execute a schedule. If `loss` is nullptr, stores the outputs of the last stage
    // instead of computing a loss. Error messages begin with `op`, a string literal.
    PipelineRun(const char* op, Pipeline::Impl& pipeline, const Schedule& schedule,
                const std::vector<Tree>& batches, std::vector<double> factors,
                const PipelineLoss* loss, std::uint64_t seed, double gradient_scale = 1);
    PipelineResult run();

  private:
    // A micro-batch on a stage.
    struct Slot {
        Tensor input, output;
        Tensor output_gradient, input_gradient;
        autograd::GradientQueue queue;
        Work receiving;
    };

    Slot& slot(int stage, int micro_batch);
    bool crosses(int from, int to) const;
    void execute(const Action& action);
    void post_receives(std::size_t from);
    bool post_receive(const Action& action, bool may_wait);
    void forward(int stage, int micro_batch);
    Tensor run_stage(int stage, int micro_batch, const Tensor& input);
    void backward(const Action& action);
    void send_activation(const Action& action);
    void send_gradient(const Action& action);
    void send(const Tensor& x, int to_stage, int tag);

    const char* op_;
    Pipeline::Impl& pipeline_;
    const Schedule& schedule_;
    const std::vector<Action>& actions_;
    const std::vector<Tree>& batches_;
    std::vector<std::string> signatures_;
    std::vector<double> factors_;
    const PipelineLoss* loss_;
    const nn::HeadPiece* head_;  // the last piece if it computes the loss, otherwise nullptr
    std::uint64_t seed_;
    double gradient_scale_;
    bool trains_;
    std::vector<Slot> slots_;
    std::size_t posted_ = 0;  // the number of actions that need no further post_receive()
    std::deque<std::pair<Work, Tensor>> sending_;
    std::int64_t stored_ = 0, queued_bytes_ = 0;
    PipelineResult result_;
};

}  // namespace axle::dist
