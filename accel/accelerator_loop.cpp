// Implements Accelerator's methods for micro-batches, losses and gradients.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "accel/accelerator.h"
#include "accel/accelerator_parts.h"
#include "accel/config/resolve_options.h"
#include "accel/prepare/pipeline_model.h"
#include "core/autograd/local_part.h"
#include "core/cuda/graph.h"
#include "core/ops.h"
#include "nn/models/pieces.h"
#include "optim/clip.h"
#include "optim/lomo.h"

namespace axle::accel {

// --- gradient accumulation and synchronization

AccumulateScope Accelerator::begin_micro_batch(std::initializer_list<const nn::Module*> models) {
    LoopState& loop = *parts_->loop;
    std::function<void()> at_end;
    if (loop.scaling) {
        loop.scaling->begin_iteration();
        at_end = [state = parts_->loop] { state->scaling->end_iteration(); };
    }
    loop.recorder.add_micro_batch();
    loop.accumulation.begin_micro_batch();
    if (loop.accumulation.options().short_window == ShortWindow::drop)
        parts_->preparation.update_division();
    return {loop.accumulation.holds_back()
                ? parts_->preparation.no_sync_guards("accumulate", models)
                : NoSyncScope::Guards(),
            std::move(at_end)};
}

NoSyncScope::Guards Accelerator::no_sync_guards(std::initializer_list<const nn::Module*> models) {
    return parts_->preparation.no_sync_guards("no_sync", models);
}

SyncScope Accelerator::trigger_sync_in_backward(nn::Module& model) {
    return SyncScope(parts_->preparation.replicas_of("trigger_sync_in_backward", model));
}

data::SkipDataLoader Accelerator::skip_first_batches(data::DataLoader& loader,
                                                     std::int64_t num_batches) const {
    return data::skip_first_batches(loader, num_batches);
}

dist::DistributedModel* Accelerator::data_parallel(const nn::Module& model) const {
    return parts_->preparation.replicas_of("Accelerator", model);
}

JoinScope Accelerator::join_uneven_inputs(const std::vector<nn::Module*>& models,
                                          std::optional<bool> even_batches) {
    return parts_->preparation.join(models, even_batches);
}

bool Accelerator::sync_gradients() const { return parts_->loop->accumulation.sync_gradients(); }
void Accelerator::set_sync_gradients(bool sync) {
    parts_->loop->accumulation.set_sync_gradients(sync);
}
std::int64_t Accelerator::step() const { return parts_->loop->accumulation.counts().step; }
GradientState Accelerator::gradient_state() const { return parts_->loop->accumulation.state(); }

int Accelerator::gradient_accumulation_steps() const {
    return parts_->loop->accumulation.options().num_steps;
}
void Accelerator::set_gradient_accumulation_steps(int steps) {
    parts_->loop->accumulation.set_num_steps(
        positive_steps("set_gradient_accumulation_steps: steps", steps));
}

data::DataLoader* Accelerator::active_dataloader() const {
    return parts_->loop->accumulation.active_loader();
}

std::int64_t Accelerator::valid_rows(std::int64_t rows) const {
    const data::DataLoader* loader = active_dataloader();
    if (!should_read_data()) return 0;
    return loader != nullptr && loader->batch_samples() == rows ? loader->valid_samples() : rows;
}

// --- losses and backward passes

Tensor Accelerator::scaled(const Tensor& loss) {
    LossScaling* const scaling = parts_->loop->scaling.get();
    if (scaling == nullptr) return loss;
    scaling->before_backward();
    return scaling->scaler().scale(loss);
}

void Accelerator::backward(const Tensor& loss, const BackwardOptions& options) {
    parts_->loop->has_updated = false;
    Accumulation& accumulation = parts_->loop->accumulation;
    const int n = accumulation.options().num_steps;
    const Tensor part = n == 1 ? loss : loss / static_cast<double>(n);
    if (options.learning_rate) {
        if (options.retain_graph)
            throw UsageError(
                "backward: learning_rate cannot be combined with retain_graph, because backward "
                "then changes the weights; leave one of them out");
        return lomo_backward(part, options.learning_rate);
    }
    if (accumulation.options().short_window != ShortWindow::actual) {
        accumulation.division().note_mean("backward");
        return scaled(part).backward({}, options.retain_graph);
    }
    parts_->preparation.update_division();
    accumulation.division().backward_mean(scaled(part), accumulation.sync_gradients(),
                                          options.retain_graph);
}

void Accelerator::backward(const Tensor& loss_sum, double weight) {
    if (!(weight >= 0) || std::isinf(weight))
        throw ValueError(str("backward: the weight must be finite and not negative: ", weight));
    backward(loss_sum, full({}, weight, {.dtype = f64, .device = loss_sum.device()}));
}

void Accelerator::backward(const Tensor& loss_sum, const Tensor& weight) {
    if (is_capturing())
        throw UsageError(
            "backward: a loss with a weight can't be captured in a graph; the step runs eagerly");
    if (!weight.defined() || weight.numel() != 1)
        throw ShapeError(str("backward: the weight must have one element: ",
                             weight.defined() ? str(weight.shape()) : "undefined"));
    parts_->loop->has_updated = false;
    parts_->preparation.update_division();
    Accumulation& accumulation = parts_->loop->accumulation;
    const Tensor number = weight.detach().to(loss_sum.device()).to(f64).reshape(Shape{});
    accumulation.division().backward_sum(scaled(loss_sum), number,
                                         parts_->preparation.data_parallel_size(),
                                         accumulation.sync_gradients());
}

dist::Pipeline& Accelerator::pipeline(nn::Module& model) const {
    return pipeline_of("pipeline", parts_->preparation, model);
}

Tensor Accelerator::pipeline_step(nn::Module& model, const Tree& batch,
                                  const dist::PipelineLoss& loss) {
    dist::Pipeline& stages = pipeline_of("pipeline_step", parts_->preparation, model);
    parts_->loop->has_updated = false;
    Accumulation& accumulation = parts_->loop->accumulation;
    accumulation.division().note_mean("pipeline_step");
    const int steps = accumulation.options().num_steps;
    double scale = 1.0 / steps;
    if (LossScaling* const scaling = parts_->loop->scaling.get()) {
        scaling->before_backward();
        scale *= scaling->scaler().get_scale();
    }
    const dist::PipelineLoss& custom = options_.megatron_lm_plugin->custom_loss_function;
    const dist::PipelineLoss otherwise = custom ? custom : dist::PipelineLoss(nn::label_loss);
    Tensor mean = stages.step(batch, loss ? loss : otherwise, scale);
    const Accumulation::Counts& counts = accumulation.counts();
    if (accumulation.options().short_window == ShortWindow::actual && counts.sync_gradients &&
        counts.window > 0 && counts.window < steps) {
        const NoGrad no_grad;
        for (const Tensor& parameter : stages.parameters())
            if (Tensor gradient = autograd::local_part(parameter).grad(); gradient.defined())
                gradient.mul_(static_cast<double>(steps) / static_cast<double>(counts.window));
    }
    return mean;
}

void Accelerator::lomo_backward(const Tensor& loss, std::optional<double> learning_rate) {
    if (!learning_rate)
        throw ValueError(
            "lomo_backward: the learning rate is missing; call lomo_backward(loss, learning_rate)");
    std::vector<optim::FusedOptimizer*> optimizers;
    for (optim::Optimizer* optimizer : parts_->preparation.optimizers())
        if (auto* const fused = dynamic_cast<optim::FusedOptimizer*>(optimizer))
            optimizers.push_back(fused);
    if (optimizers.empty())
        throw ValueError(
            "lomo_backward: no optim::Lomo or optim::AdaLomo has been prepared; pass one to "
            "prepare() first");
    if (parts_->loop->scaling)
        throw UsageError(
            "lomo_backward: can't be used with the loss scaler of fp16, because gradients are "
            "applied before all are known to be finite; use bf16");
    // Gradients are averaged even if accumulate() suspends averaging, because each call is an
    // update.
    std::vector<std::unique_ptr<SyncScope>> scopes;
    for (const auto& replicas : parts_->preparation.replicas())
        if (replicas) scopes.push_back(std::make_unique<SyncScope>(replicas.get()));
    optim::FusedOptimizer::fused_backward(optimizers, loss, *learning_rate, !scopes.empty());
}

// --- gradients

Tensor Accelerator::clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                    double norm_type) {
    complete_gradients("clip_grad_norm_", parameters);
    if (dist::Pipeline* const pipeline = find_pipeline(parts_->preparation, parameters))
        return pipeline->clip_grad_norm_(max_norm, norm_type);
    return optim::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
    complete_gradients("clip_grad_value_", parameters);
    optim::clip_grad_value_(parameters, clip_value);
}

// Divides and unscales the gradients before they are clipped. Throws UsageError if they are not
// complete.
void Accelerator::complete_gradients(const char* op, const std::vector<Tensor>& parameters) {
    LoopState& loop = *parts_->loop;
    if (!loop.accumulation.sync_gradients())
        throw UsageError(str(op,
                             ": gradients can be clipped only when they are complete: check "
                             "accelerator.sync_gradients() first"));
    loop.accumulation.division().divide(parameters);
    if (loop.scaling) loop.scaling->unscale(parameters);
}

void Accelerator::unscale_gradients() {
    LoopState& loop = *parts_->loop;
    if (loop.accumulation.sync_gradients()) loop.accumulation.division().divide_all();
    if (loop.scaling) loop.scaling->unscale_all();
}

void Accelerator::unscale_gradients(optim::Optimizer& optimizer) {
    LoopState& loop = *parts_->loop;
    if (loop.accumulation.sync_gradients()) loop.accumulation.division().divide(optimizer);
    if (loop.scaling) loop.scaling->unscale(optimizer.parameters());
}

void Accelerator::unscale_gradients(const std::vector<optim::Optimizer*>& optimizers) {
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
        if (optimizers[i] == nullptr)
            throw UsageError(str("unscale_gradients: optimizers[", i, "] is null"));
        unscale_gradients(*optimizers[i]);
    }
}

bool Accelerator::optimizer_step_was_skipped() const {
    const auto& optimizers = parts_->preparation.optimizers();
    return std::any_of(optimizers.begin(), optimizers.end(),
                       [](const optim::Optimizer* o) { return o->step_was_skipped(); });
}

}  // namespace axle::accel
