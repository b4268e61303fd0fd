// Micro-batches, their losses and their gradients.
#include <cmath>

#include "accel/loop/step_record.h"
#include "accel/process/accelerator_state.h"
#include "core/autograd/autograd.h"
#include "core/graph.h"
#include "core/log.h"
#include "core/ops.h"
#include "optim/clip.h"

namespace axle::inline v0::accel {

// --- when an update is complete

bool Accelerator::State::ends_pass() const {
    const bool updates =
        short_window == ShortWindow::as_upstream || short_window == ShortWindow::actual;
    return sync_with_dataloader && updates && end_of_dataloader();
}

void Accelerator::State::count_micro_batch() {
    ++opened;
    if (record != nullptr) ++record->accumulations;
    if (sync_gradients) {
        window = 0;
        division.begin_window();
    }
    ++window;
    loader = active.empty() ? nullptr : active.back();
    is_last_batch = end_of_dataloader();
    step = ends_pass() ? 0 : step + 1;
    sync_gradients = step % num_steps == 0;
    if (short_window == ShortWindow::actual)
        division.set_share(static_cast<double>(window) / num_steps);
}

bool Accelerator::State::is_to_drop() const {
    return short_window == ShortWindow::drop && is_last_batch && !sync_gradients;
}

void Accelerator::State::end_pass(const data::DataLoader& of) {
    if (short_window != ShortWindow::drop || !is_last_batch || loader != &of) return;
    if (!sync_gradients) division.discard();
    division.begin_window();
    step = window = 0;
    is_last_batch = false;
}

void Accelerator::advance_accumulation() {
    if (state_->scaling) state_->scaling->begin_iteration();
    state_->count_micro_batch();
    if (state_->short_window == ShortWindow::drop) look_at_prepared();
}

std::function<void()> Accelerator::end_of_micro_batch() const {
    if (!state_->scaling) return {};
    return [state = state_] {
        if (state->scaling) state->scaling->end_iteration();
    };
}

// --- losses

void Accelerator::look_at_prepared() {
    state_->division.set_objects(models_, replicas_, optimizers_);
}

Tensor Accelerator::scaled(const Tensor& loss) {
    if (!state_->scaling) return loss;
    state_->scaling->before_backward();
    return state_->scaling->scaler().scale(loss);
}

void Accelerator::backward(const Tensor& loss, const BackwardOptions& options) {
    const int n = state_->num_steps;
    const Tensor part = n == 1 ? loss : loss / static_cast<double>(n);
    if (options.learning_rate) {
        if (options.retain_graph)
            throw UsageError("backward: a learning rate and retain_graph: weights have changed");
        return lomo_backward(part, options.learning_rate);
    }
    if (state_->short_window != ShortWindow::actual) {
        state_->division.note_mean();
        return scaled(part).backward({}, options.retain_graph);
    }
    look_at_prepared();
    state_->division.backward_mean(scaled(part), state_->sync_gradients, options.retain_graph);
}

void Accelerator::backward(const Tensor& loss_sum, double weight) {
    if (!(weight >= 0) || std::isinf(weight))
        throw ValueError(str("backward: a weight is a number that is not negative: ", weight));
    backward(loss_sum, full({}, weight, {.dtype = f64, .device = loss_sum.device()}));
}

void Accelerator::backward(const Tensor& loss_sum, const Tensor& weight) {
    if (is_capturing())
        throw UsageError("backward: a loss with a weight can't be captured: it runs eagerly");
    if (!weight.defined() || weight.numel() != 1)
        throw ShapeError(str("backward: a weight is one number: ",
                             weight.defined() ? str(weight.shape()) : "undefined"));
    look_at_prepared();
    const Tensor number = weight.detach().to(loss_sum.device()).to(f64).reshape(Shape{});
    state_->division.backward_sum(scaled(loss_sum), number, num_processes(),
                                  state_->sync_gradients);
}

// --- gradients

Tensor Accelerator::clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                    double norm_type) {
    complete_to_clip("clip_grad_norm_", parameters);
    return optim::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
    complete_to_clip("clip_grad_value_", parameters);
    optim::clip_grad_value_(parameters, clip_value);
}

void Accelerator::complete_to_clip(const char* op, const std::vector<Tensor>& parameters) {
    if (!state_->sync_gradients)
        throw UsageError(str(op,
                             ": gradients are clipped when they are complete: if "
                             "(accelerator.sync_gradients())"));
    state_->division.divide(parameters);
    if (state_->scaling) state_->scaling->unscale(parameters);
}

void Accelerator::unscale_gradients() {
    if (state_->sync_gradients) state_->division.divide_all();
    if (state_->scaling) state_->scaling->unscale_all();
}

void Accelerator::unscale_gradients(optim::Optimizer& optimizer) {
    if (state_->sync_gradients) state_->division.divide(optimizer);
    if (state_->scaling) state_->scaling->unscale(optimizer.parameters());
}

}  // namespace axle::inline v0::accel
