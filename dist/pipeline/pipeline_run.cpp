#include <algorithm>
#include <array>
#include <optional>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "dist/pipeline/pipeline_impl.h"
#include "kernels/error.h"
#include "nn/models/pieces.h"

namespace axle::dist {
namespace {

using enum ActionKind;

// Mixes two numbers (the finalizer of splitmix64).
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a + 0x9e3779b97f4a7c15 * (b + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

bool is_message(ActionKind kind) {
    return kind == send_activation || kind == send_gradient || kind == receive_activation ||
           kind == receive_gradient;
}

// The type of an activation as numbers: dtype, number of dimensions, sizes.
constexpr std::int64_t kTypeNumbers = 2 + kMaxDims;

Tensor to_numbers(const ActivationType& type) {
    std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(type.dtype), type.shape.size()};
    for (const std::int64_t size : type.shape) numbers.push_back(size);
    numbers.resize(kTypeNumbers);
    return tensor(numbers);
}

// Returns the last piece as a HeadPiece if it can compute the loss itself, because `loss` is
// nn::label_loss. Otherwise returns nullptr.
const nn::HeadPiece* head_with_loss(const std::vector<nn::Piece>& pieces,
                                    const PipelineLoss* loss) {
    using Function = Tensor (*)(const Tensor&, const Tree&);
    const Function* const function = loss == nullptr ? nullptr : loss->target<Function>();
    if (function == nullptr || *function != nn::label_loss) return nullptr;
    return pieces.back().forward.target<nn::HeadPiece>();
}

ActivationType from_numbers(const Tensor& x) {
    const std::int64_t* const numbers = x.data<std::int64_t>();
    return {static_cast<DType>(numbers[0]),
            Shape(std::span(numbers + 2, static_cast<std::size_t>(numbers[1])))};
}

}  // namespace

PipelineRun::PipelineRun(const char* op, Pipeline::Impl& pipeline, const Schedule& schedule,
                         const std::vector<Tree>& batches, std::vector<double> factors,
                         const PipelineLoss* loss, std::uint64_t seed, double gradient_scale)
    : op_(op),
      pipeline_(pipeline),
      schedule_(schedule),
      actions_(schedule.actions[static_cast<std::size_t>(pipeline.rank())]),
      batches_(batches),
      factors_(std::move(factors)),
      loss_(loss),
      head_(head_with_loss(pipeline.pieces, loss)),
      seed_(mix(seed, static_cast<std::uint64_t>(pipeline.steps))),
      gradient_scale_(gradient_scale),
      trains_(schedule.trains()),
      slots_(static_cast<std::size_t>(schedule.chunks) * batches.size()) {
    for (const Tree& batch : batches) signatures_.push_back(pipeline.signature_of(batch));
    result_.outputs.resize(batches.size());
}

PipelineResult PipelineRun::run() {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
        post_receives(i);
        execute(actions_[i]);
    }
    for (auto& [work, tensor] : sending_) work.wait();
    return std::move(result_);
}

PipelineRun::Slot& PipelineRun::slot(int stage, int micro_batch) {
    const auto chunk = static_cast<std::size_t>(stage / schedule_.ranks);
    return slots_[chunk * batches_.size() + static_cast<std::size_t>(micro_batch)];
}

bool PipelineRun::crosses(int from, int to) const {
    return schedule_.rank_of(from) != schedule_.rank_of(to);
}

void PipelineRun::execute(const Action& action) {
    switch (action.kind) {
        case ActionKind::forward:
            return forward(action.stage, action.micro_batch);
        case ActionKind::backward:
        case backward_input:
        case backward_weight:
            return backward(action);
        case ActionKind::send_activation:
            return send_activation(action);
        case ActionKind::send_gradient:
            return send_gradient(action);
        case receive_activation:
        case receive_gradient:
            slot(action.stage, action.micro_batch).receiving.wait();
            return;
    }
}

// Starts the receives that the next two computations need, beginning with the action at `from`. The
// messages can then arrive while this rank computes.
void PipelineRun::post_receives(std::size_t from) {
    int computations = 0;
    for (std::size_t i = from; i < actions_.size() && computations < 2; ++i) {
        const Action& action = actions_[i];
        computations += !is_message(action.kind);
        if (i < posted_) continue;
        if ((action.kind == receive_activation || action.kind == receive_gradient) &&
            !post_receive(action, i == from))
            return;
        posted_ = i + 1;
    }
}

// Starts to receive a message. Returns false if this is not possible yet: the output for a gradient
// is not computed, or the type of an activation is unknown and may_wait is false.
bool PipelineRun::post_receive(const Action& action, bool may_wait) {
    ProcessGroup& group = *pipeline_.group;
    const auto [kind, stage, micro_batch] = action;
    Slot& at = slot(stage, micro_batch);
    if (kind == receive_gradient) {
        if (!at.output.defined()) return false;
        at.output_gradient = Tensor::empty(
            at.output.shape(), {.dtype = at.output.dtype(), .device = at.output.device()});
        at.receiving = group.recv_async(at.output_gradient, schedule_.rank_of(stage + 1),
                                        tag_of(MessageKind::gradient, stage));
        return true;
    }
    const int from = schedule_.rank_of(stage - 1);
    const std::pair key(stage, signatures_[static_cast<std::size_t>(micro_batch)]);
    auto known = pipeline_.types.find(key);
    if (known == pipeline_.types.end()) {
        if (!may_wait) return false;
        const Tensor numbers = Tensor::empty({kTypeNumbers}, {.dtype = i64});
        group.recv(numbers, from, tag_of(MessageKind::activation_type, stage));
        known = pipeline_.types.emplace(key, from_numbers(numbers)).first;
        ++pipeline_.counters.agreed_shapes;
    }
    at.input = Tensor::empty(known->second.shape,
                             {.dtype = known->second.dtype, .device = pipeline_.device()});
    at.receiving = group.recv_async(at.input, from, tag_of(MessageKind::activation, stage));
    return true;
}

Tensor PipelineRun::run_stage(int stage, int micro_batch, const Tensor& input) {
    const Tree& batch = batches_[static_cast<std::size_t>(micro_batch)];
    const std::uint64_t seed = mix(seed_, static_cast<std::uint64_t>(micro_batch));
    const auto run_piece = [this, &batch, seed](int index, const Tensor& x) {
        const GeneratorScope scope({mix(seed, static_cast<std::uint64_t>(index)), 0});
        const auto at = static_cast<std::size_t>(index);
        if (head_ != nullptr && at + 1 == pipeline_.pieces.size())
            return head_->label_loss(x, batch);
        return pipeline_.pieces[at].forward(x, batch);
    };
    const int begin = pipeline_.plan->begin(stage), end = pipeline_.plan->begin(stage + 1);
    const auto run_pieces = [run_piece](int from, int to, Tensor x) {
        for (int i = from; i < to; ++i) x = run_piece(i, x);
        return x;
    };
    const PipelineOptions& options = pipeline_.options;
    // The input of the first piece is undefined, so it is not an input of checkpoint().
    const auto recompute = [](const Tensor& x, const auto& f) {
        std::vector<Tensor> inputs;
        if (x.defined()) inputs.push_back(x);
        return checkpoint(
            [f](const std::vector<Tensor>& in) { return f(in.empty() ? Tensor() : in[0]); },
            inputs);
    };
    if (!trains_ || options.recompute == Recompute::none) return run_pieces(begin, end, input);
    // The number of pieces that are recomputed together.
    const int size = options.recompute == Recompute::pieces         ? options.recompute_pieces
                     : options.recompute == Recompute::first_pieces ? 1
                                                                    : end - begin;
    const int last = options.recompute == Recompute::first_pieces
                         ? std::min(end, begin + options.recompute_pieces)
                         : end;
    Tensor x = input;
    for (int i = begin; i < last; i += size)
        x = recompute(x, [run_pieces, i, to = std::min(i + size, end)](const Tensor& in) {
            return run_pieces(i, to, in);
        });
    return run_pieces(last, end, x);
}

void PipelineRun::forward(int stage, int micro_batch) {
    Slot& at = slot(stage, micro_batch);
    const bool is_last = stage == schedule_.stages() - 1;
    if (stage > 0 && !crosses(stage - 1, stage)) {
        Slot& previous = slot(stage - 1, micro_batch);
        at.input = previous.output.detach();
        if (!trains_) previous.output = {};
    }
    const std::shared_ptr<const nn::ForwardHooks>& hooks = pipeline_.model->hooks();
    std::optional<AutocastGuard> autocast;
    if (hooks != nullptr && hooks->autocast) autocast.emplace(*hooks->autocast);
    const GradMode mode(trains_);
    if (trains_ && at.input.defined()) at.input.set_requires_grad();
    at.output = run_stage(stage, micro_batch, at.input);
    if (trains_)
        pipeline_.counters.peak_stored = std::max(pipeline_.counters.peak_stored, ++stored_);
    else
        at.input = {};
    if (!is_last) return;
    if (hooks != nullptr && hooks->outputs_to_f32 && is_half(at.output.dtype()))
        at.output = at.output.to(f32);
    const auto index = static_cast<std::size_t>(micro_batch);
    if (loss_ == nullptr) {
        result_.outputs[index] = std::move(at.output);
        return;
    }
    const GeneratorScope scope(
        {mix(mix(seed_, static_cast<std::uint64_t>(micro_batch)), pipeline_.pieces.size()), 0});
    // A mean over no tokens is NaN. Its factor is 0, and 0 * NaN would be NaN, so the loss is set
    // to 0.
    const double factor = factors_[index];
    if (factor == 0)
        at.output = sum(at.output.reshape({-1}).narrow(0, 0, 0));  // 0, with zero gradients
    else
        at.output =
            mul(head_ != nullptr ? at.output : (*loss_)(at.output, batches_[index]), factor);
    if (at.output.numel() != 1)
        throw ShapeError(
            str(op_, ": the loss must have one element: its shape is ", at.output.shape()));
    result_.loss += at.output.item();
    if (gradient_scale_ != 1) at.output = mul(at.output, gradient_scale_);
    if (!trains_) at.output = {};
}

void PipelineRun::backward(const Action& action) {
    const auto [kind, stage, micro_batch] = action;
    Slot& at = slot(stage, micro_batch);
    // Recomputed pieces set the state of the generator; the scope restores it.
    const GeneratorScope generator({seed_, 0});
    if (kind == backward_weight) {
        queued_bytes_ -= at.queue.bytes();
        at.queue.flush();
        --stored_;
        return;
    }
    if (stage + 1 < schedule_.stages() && !crosses(stage, stage + 1))
        at.output_gradient = std::move(slot(stage + 1, micro_batch).input_gradient);
    if (at.output.requires_grad()) {
        std::optional<autograd::DeferGradients> defer;
        if (kind == backward_input) defer.emplace(at.queue, at.input);
        std::vector<Tensor> gradients;
        if (at.output_gradient.defined()) gradients.push_back(at.output_gradient);
        autograd::backward({at.output}, gradients);
    }
    if (at.input.defined()) {
        at.input_gradient = at.input.grad();
        if (!at.input_gradient.defined()) at.input_gradient = zeros_like(at.input);
        at.input_gradient = at.input_gradient.to(at.input.dtype());
    }
    at.input = at.output = at.output_gradient = {};
    queued_bytes_ += at.queue.bytes();
    pipeline_.counters.peak_queued_bytes =
        std::max(pipeline_.counters.peak_queued_bytes, queued_bytes_);
    if (kind == ActionKind::backward) --stored_;
}

void PipelineRun::send_activation(const Action& action) {
    const auto [kind, stage, micro_batch] = action;
    Slot& at = slot(stage, micro_batch);
    const Tensor output = at.output.detach();
    const ActivationType type{output.dtype(), output.shape()};
    const auto [known, is_new] = pipeline_.types.try_emplace(
        {stage + 1, signatures_[static_cast<std::size_t>(micro_batch)]}, type);
    if (is_new)
        send(to_numbers(type), stage + 1, tag_of(MessageKind::activation_type, stage + 1));
    else if (known->second != type)
        throw ShapeError(str(op_,
                             ": micro-batches of equal shapes must have activations "
                             "of equal dtype and shape: the output of stage ",
                             stage, " is ", type.dtype, ' ', type.shape, ", but was ",
                             known->second.dtype, ' ', known->second.shape,
                             " in an earlier micro-batch"));
    send(output, stage + 1, tag_of(MessageKind::activation, stage + 1));
    ++pipeline_.counters.messages;
    pipeline_.counters.bytes += output.numel() * size_of(output.dtype());
    if (!trains_) at.output = {};
}

void PipelineRun::send_gradient(const Action& action) {
    const auto [kind, stage, micro_batch] = action;
    const Tensor gradient = std::exchange(slot(stage, micro_batch).input_gradient, {});
    send(gradient, stage - 1, tag_of(MessageKind::gradient, stage - 1));
    ++pipeline_.counters.messages;
    pipeline_.counters.bytes += gradient.numel() * size_of(gradient.dtype());
}

void PipelineRun::send(const Tensor& x, int to_stage, int tag) {
    while (!sending_.empty() && sending_.front().first.is_completed()) {
        sending_.front().first.wait();
        sending_.pop_front();
    }
    sending_.emplace_back(pipeline_.group->send_async(x, schedule_.rank_of(to_stage), tag), x);
}

}  // namespace axle::dist
