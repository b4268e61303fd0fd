#include "dist/pipeline/pipeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/tree/tree_utils.h"
#include "dist/group/shared_error.h"
#include "dist/pipeline/pipeline_impl.h"
#include "dist/pipeline/simulation.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr const char* kOp = "Pipeline";
constexpr const char* kStep = "pipeline_step";

std::string text_of(const Schedule& schedule) {
    return str(schedule.name, " of ", schedule.micro_batches, " micro-batches and ",
               schedule.chunks, " stages per rank");
}

// Throws ValueError unless all[rank][key] is the same text for all ranks. All ranks pass the same
// `all`, so either all ranks throw or none does.
void check_equal(const char* op, const char* what, const std::vector<Tree>& all, const char* key) {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank][key].string() != all[0][key].string())
            throw ValueError(str(op, ": all ranks must have the same ", what, ": rank 0 has ",
                                 all[0][key].string(), ", rank ", rank, " has ",
                                 all[rank][key].string()));
}

std::int64_t rows_of(const char* op, const Tree& batch) {
    std::int64_t rows = -1;
    map_leaves(op, batch, [&](const Tree& leaf, const std::string& path) {
        if (!leaf.is_tensor()) return leaf;
        if (leaf.dim() == 0)
            throw ShapeError(
                str(op, ": each tensor of a batch must have rows: ", path, " is ", leaf.shape()));
        if (rows >= 0 && leaf.size(0) != rows)
            throw ShapeError(str(op,
                                 ": all tensors of a batch must have the same number of "
                                 "rows: ",
                                 path, " is ", leaf.shape(), ", expected ", rows, " rows"));
        rows = leaf.size(0);
        return leaf;
    });
    if (rows < 0) throw ValueError(str(op, ": the batch must have at least one tensor: ", batch));
    return rows;
}

// Returns the unreduced gradient of a parameter. Without a gradient, returns zeros in the dtype of
// the gradient on other ranks.
Tensor gradient_of(const Tensor& parameter) {
    if (const Tensor own = autograd::pending_gradient(parameter); own.defined()) return own;
    const DType dtype = is_half(parameter.dtype()) ? f32 : parameter.dtype();
    return zeros(parameter.shape(), {.dtype = dtype, .device = parameter.device()});
}

double count_tokens(const char* op, const Tree& batch, const std::string& key) {
    const Tree* const labels = batch.is_map() ? batch.find(key) : nullptr;
    if (labels == nullptr || !labels->is_tensor())
        throw ValueError(str(op,
                             ": an average over tokens needs the labels of the batch, which "
                             "has no tensor with the key ",
                             in_quotes(key),
                             "; set PipelineOptions::labels to the key of the labels"));
    const NoGrad no_grad;
    return sum(ne(labels->tensor(), -100).to(f64)).item();
}

}  // namespace

bool has_own_replicas(const Tensor& parameter) {
    const auto slice = autograd::slice_of(parameter);
    return slice != nullptr && slice->is_reduced();
}

Pipeline::Impl::Impl(nn::Module& model_, std::vector<nn::Piece> pieces_,
                     std::shared_ptr<ProcessGroup> group_, PipelineOptions options_)
    : model(&model_),
      pieces(std::move(pieces_)),
      group(std::move(group_)),
      options(std::move(options_)) {
    const auto describe = [this]() -> Tree {
        schedule = options.custom_schedule ? *options.custom_schedule
                                           : make_schedule(options.schedule, group->size(),
                                                           options.micro_batches, options.chunks);
        if (schedule.ranks != group->size())
            throw ValueError(str(kOp, ": the schedule is for ", schedule.ranks,
                                 " ranks, but the group has ", group->size()));
        if (options.recompute_pieces < 1)
            throw ValueError(
                str(kOp, ": recompute_pieces must be at least 1: ", options.recompute_pieces));
        if (!schedule.trains())
            throw ValueError(str(kOp, ": the schedule ", schedule.name, " has no backward"));
        simulate(schedule);
        plan = std::make_unique<StagePlan>(*model, pieces, schedule.ranks, schedule.chunks,
                                           options.stage_sizes);
        for (const Held& held : plan->parameters())
            if (!held.is_on(rank()) && held.tensor.grad().defined())
                throw UsageError(
                    str(kOp, ": ", held.name, " has a gradient; call zero_grad() first"));
        return {{"schedule", str(text_of(schedule), " (", schedule.fingerprint(), ')')},
                {"plan", plan->text()}};
    };
    const std::vector<Tree> all = gather_or_throw(*group, kOp, describe);
    check_equal(kOp, "schedule", all, "schedule");
    check_equal(kOp, "stages", all, "plan");
    for (const Held& held : plan->parameters()) {
        if (held.is_on(rank())) continue;
        held.tensor.set_data(Tensor::empty(
            held.tensor.shape(), {.dtype = held.tensor.dtype(), .device = Device::meta()}));
    }
    share_initial_values();
    const auto& replicas = options.data_parallel;
    if (options.shard_optimizer && replicas != nullptr && replicas->size() > 1)
        shards = std::make_unique<StageShards>(plan->parameters(), rank(), replicas, device());
}

// Broadcasts the initial values of parameters and buffers, except experts that replicas divide.
// Replicas and the copies of tied parameters then begin with the same values, as in data parallel
// training.
void Pipeline::Impl::share_initial_values() {
    const NoGrad no_grad;
    int index = 0;
    for (const std::vector<Held>* list : {&plan->parameters(), &plan->buffers()})
        for (const Held& held : *list) {
            const int tag = tag_of(MessageKind::tied, index++);
            if (!held.is_on(rank()) || held.tensor.device().is_meta()) continue;
            const Tensor values = held.tensor.detach();
            if (options.data_parallel != nullptr && !has_own_replicas(held.tensor))
                options.data_parallel->broadcast(values, 0);
            if (rank() != held.owner()) {
                group->recv(values, held.owner(), tag);
                continue;
            }
            for (const int to : held.ranks)
                if (to != rank()) group->send(values, to, tag);
        }
}

Device Pipeline::Impl::device() const {
    for (const Held& held : plan->parameters())
        if (held.is_on(rank())) return held.tensor.device();
    return Device::cpu();
}

std::string Pipeline::Impl::signature_of(const Tree& batch) const {
    const std::shared_ptr<const nn::ForwardHooks>& hooks = model->hooks();
    std::string signature = str(plan->parameters().front().tensor.dtype());
    if (hooks != nullptr && hooks->autocast)
        signature += str(' ', *hooks->autocast);
    else if (const std::optional<DType> dtype = autocast_dtype())
        signature += str(' ', *dtype);
    map_leaves(kStep, batch, [&](const Tree& leaf, const std::string& path) {
        signature += str(' ', path);
        if (leaf.is_tensor()) signature += str(' ', leaf.dtype(), ' ', leaf.shape());
        return leaf;
    });
    return signature;
}

std::vector<Tree> Pipeline::Impl::divide(const char* op, const Tree& batch, int count,
                                         bool allow_fewer) {
    const std::int64_t rows = rows_of(op, batch);
    if (allow_fewer) count = static_cast<int>(std::min<std::int64_t>(rows, count));
    if (rows < count || count == 0)
        throw ValueError(str(op, ": the batch must have at least ",
                             count > 1 ? str(count, " rows") : "one row",
                             ", one for each micro-batch: it has ", rows));
    std::vector<Tree> parts;
    std::int64_t begin = 0;
    for (int i = 0; i < count; ++i) {
        const std::int64_t end = begin + rows / count + (i < rows % count);
        parts.push_back(slice_tensors(batch, begin, end));
        begin = end;
    }
    return parts;
}

Pipeline::Impl::Call Pipeline::Impl::begin(const char* op, bool trains,
                                           const std::function<std::vector<Tree>()>& split) {
    Call call;
    const std::vector<Tree> all = gather_or_throw(*group, op, [&]() -> Tree {
        call.batches = split();
        if (!trains)
            call.forwards = make_forward_schedule(
                schedule.ranks, static_cast<int>(call.batches.size()), schedule.chunks);
        const Schedule& used = trains ? schedule : call.forwards;
        if (std::ssize(call.batches) != used.micro_batches)
            throw ValueError(str(op, ": the schedule is for ", used.micro_batches,
                                 " micro-batches, not ", call.batches.size()));
        std::string shapes;
        for (const Tree& batch : call.batches) shapes += signature_of(batch) + "; ";
        return {{"batch", shapes},
                {"step", std::to_string(steps)},
                {"seed", std::to_string(generator_state().seed)}};
    });
    check_equal(op, "micro-batches", all, "batch");
    check_equal(op, "number of steps", all, "step");
    call.seed = std::stoull(all[0]["seed"].string());
    if (shards != nullptr) shards->gather();
    return call;
}

PipelineResult Pipeline::Impl::run_forwards(const char* op, const Tree& batch,
                                            const PipelineLoss* loss) {
    const Call call =
        begin(op, false, [&] { return divide(op, batch, schedule.micro_batches, true); });
    std::vector<double> factors;
    if (loss != nullptr) factors = factors_of(op, call.batches);
    return PipelineRun(op, *this, call.forwards, call.batches, std::move(factors), loss, call.seed)
        .run();
}

std::vector<double> Pipeline::Impl::factors_of(const char* op,
                                               const std::vector<Tree>& batches) const {
    std::vector<double> factors;
    double sum = 0;
    for (const Tree& batch : batches) {
        switch (options.average) {
            case MicroBatchAverage::rows:
                factors.push_back(static_cast<double>(rows_of(op, batch)));
                break;
            case MicroBatchAverage::equal:
                factors.push_back(1);
                break;
            case MicroBatchAverage::tokens:
                factors.push_back(count_tokens(op, batch, options.labels));
                break;
        }
        sum += factors.back();
    }
    if (options.data_parallel != nullptr) {
        const Tensor all = tensor({sum}, {.dtype = f64});
        options.data_parallel->all_reduce(all);
        sum = all.item();
    }
    for (double& factor : factors) factor /= std::max(sum, 1.0);
    return factors;
}

Tensor Pipeline::Impl::total(double loss) const {
    const Tensor all = tensor({loss}, {.dtype = f64});
    if (options.data_parallel != nullptr && is_last()) options.data_parallel->all_reduce(all);
    group->broadcast(all, schedule.rank_of(schedule.stages() - 1));
    return all.reshape({});
}

// Sums the gradients of tied parameters. The owner of a parameter adds the gradients of the other
// ranks, in rank order, and sends the sum to these ranks.
void Pipeline::Impl::sum_tied_gradients() {
    int index = 0;
    for (const Held& held : plan->parameters()) {
        if (held.ranks.size() < 2 || !held.tensor.requires_grad()) continue;
        const int tag = tag_of(MessageKind::tied, index++);
        if (!held.is_on(rank())) continue;
        const Tensor mine = gradient_of(held.tensor);
        if (rank() == held.owner()) {
            const Tensor other = empty_like(mine);
            for (const int from : held.ranks) {
                if (from == rank()) continue;
                group->recv(other, from, tag);
                mine.detach().add_(other);
                ++counters.tied_sums;
            }
            for (const int to : held.ranks)
                if (to != rank()) group->send(mine, to, tag);
        } else {
            group->send(mine, held.owner(), tag);
            group->recv(mine, held.owner(), tag);
        }
        autograd::set_pending_gradient(held.tensor, mine);
    }
}

void Pipeline::Impl::average_gradients() {
    if (options.data_parallel == nullptr) return;
    std::map<DType, std::vector<Tensor>> by_dtype;
    for (const Held& held : plan->parameters()) {
        if (!held.is_on(rank()) || !held.tensor.requires_grad()) continue;
        const Tensor gradient = gradient_of(held.tensor);
        autograd::set_pending_gradient(held.tensor, gradient);
        if (!has_own_replicas(held.tensor))
            by_dtype[gradient.dtype()].push_back(gradient);
        else if (shards == nullptr)  // losses are parts of one mean, so gradients are sums
            gradient.detach().mul_(options.data_parallel->size());
    }
    if (shards != nullptr) return shards->reduce();
    for (const auto& [dtype, gradients] : by_dtype) options.data_parallel->all_reduce(gradients);
}

Pipeline::Pipeline(nn::Module& model, std::vector<nn::Piece> pieces,
                   std::shared_ptr<ProcessGroup> group, PipelineOptions options)
    : impl_(make_owning<Impl>(model, std::move(pieces), std::move(group), std::move(options))) {}
Pipeline::~Pipeline() = default;

Tensor Pipeline::step(const Tree& batch, const PipelineLoss& loss, double gradient_scale) {
    return impl_->step(
        [&] { return Impl::divide(kStep, batch, impl_->schedule.micro_batches, false); }, loss,
        gradient_scale);
}

Tensor Pipeline::step(const std::vector<Tree>& micro_batches, const PipelineLoss& loss,
                      double gradient_scale) {
    return impl_->step([&] { return micro_batches; }, loss, gradient_scale);
}

Tensor Pipeline::Impl::step(const std::function<std::vector<Tree>()>& split,
                            const PipelineLoss& loss, double gradient_scale) {
    const Call call = begin(kStep, true, split);
    // Gradients of earlier steps are already averaged, so they are added after this step's
    // reduction.
    std::vector<std::pair<Tensor, Tensor>> earlier;
    for (const Held& held : plan->parameters())
        if (Tensor gradient = autograd::take_pending_gradient(held.tensor); gradient.defined())
            earlier.emplace_back(held.tensor, std::move(gradient));
    // The losses of all data parallel ranks are parts of one mean, but shards average the
    // gradients. The scale makes up for the division.
    if (shards != nullptr) gradient_scale *= options.data_parallel->size();
    PipelineRun run(kStep, *this, schedule, call.batches, factors_of(kStep, call.batches), &loss,
                    call.seed, gradient_scale);
    double own = 0;
    try {
        own = run.run().loss;
    } catch (...) {  // restores the gradients from before the call
        for (const Held& held : plan->parameters()) autograd::take_pending_gradient(held.tensor);
        for (const auto& [parameter, gradient] : earlier)
            autograd::set_pending_gradient(parameter, gradient);
        throw;
    }
    const NoGrad no_grad;
    sum_tied_gradients();
    average_gradients();
    for (const auto& [parameter, gradient] : earlier) {
        const Tensor latest = autograd::pending_gradient(parameter);
        autograd::set_pending_gradient(parameter, latest.defined() ? latest + gradient : gradient);
    }
    ++steps;
    return total(own);
}

Tensor Pipeline::evaluate(const Tree& batch, const PipelineLoss& loss) {
    return impl_->total(impl_->run_forwards("pipeline_evaluate", batch, &loss).loss);
}

Tensor Pipeline::forward(const Tree& batch, bool gather_output) {
    const std::vector<Tensor> outputs =
        impl_->run_forwards("pipeline_forward", batch, nullptr).outputs;
    const NoGrad no_grad;
    const Tensor whole = impl_->is_last() ? cat(outputs, 0) : Tensor();
    if (!gather_output) return whole;
    const int last = impl_->schedule.rank_of(impl_->schedule.stages() - 1);
    return impl_->group->broadcast_object(whole, last).tensor().to(impl_->device());
}

std::vector<std::int64_t> Pipeline::generate(std::int64_t longest, std::vector<std::int64_t> ids,
                                             std::int64_t count, nn::GenerateOptions options) {
    GeneratorState state = generator_state();
    const Tree first = impl_->group->broadcast_object(
        Tree{{"seed", std::to_string(state.seed)}, {"offset", std::to_string(state.offset)}});
    const auto logits = [this](const Tensor& window) {
        return forward(Tree{{"input_ids", window}});
    };
    {
        const GeneratorScope scope(
            {std::stoull(first["seed"].string()), std::stoull(first["offset"].string())});
        ids = nn::generate(*impl_->model, logits, longest, std::move(ids), count, options);
        state.offset = generator_state().offset;
    }
    set_generator_state(state);  // so that the next call draws different random numbers
    return ids;
}

const Schedule& Pipeline::schedule() const { return impl_->schedule; }
const PipelineCounters& Pipeline::counters() const { return impl_->counters; }
std::int64_t Pipeline::steps() const { return impl_->steps; }
void Pipeline::set_steps(std::int64_t steps) { impl_->steps = steps; }

}  // namespace axle::dist
