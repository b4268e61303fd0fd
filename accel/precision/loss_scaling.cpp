#include "accel/precision/loss_scaling.h"

#include <algorithm>
#include <unordered_set>

#include "core/autograd/local_part.h"
#include "core/ops.h"
#include "dist/group/process_group.h"
#include "dist/parallel/data_parallel.h"

namespace axle::accel {
namespace {

using optim::GradScaler;
using optim::Optimizer;

GradScaler::Progress progress_of(const GradScaler& scaler, const Optimizer& optimizer) {
    const auto found = scaler.progress().find(&optimizer);
    return found == scaler.progress().end() ? GradScaler::Progress() : found->second;
}

}  // namespace

LossScaling::LossScaling(const optim::GradScalerOptions& options, Device device,
                         const std::shared_ptr<dist::ProcessGroup>& group, bool has_stages)
    : scaler_(options), group_(group), has_stages_(has_stages) {
    scaler_.to(device);
    if (group) scaler_.set_found_inf_hook([this](const Tensor& found) { share_found_inf(found); });
}

// Sets found_inf to the maximum over the ranks. Within join_uneven_inputs(), uses
// DataParallel::sum(), because ranks without further batches take part in sum().
void LossScaling::share_found_inf(const Tensor& found_inf) {
    if (joined_ != nullptr) {
        found_inf.detach().copy_(gt(joined_->sum(found_inf), 0).to(f64));
    } else if (const auto group = group_.lock()) {
        group->all_reduce(found_inf, dist::ReduceOp::max);
    }
}

void LossScaling::end_join(std::optional<int> last) {
    joined_ = nullptr;
    const auto group = group_.lock();
    if (!last || !group) return;
    if (scaler_.has_checked_gradients()) scaler_.update();  // no rank steps again within the scope
    const Tree state = group->broadcast_object(scaler_.state_dict(), *last);
    if (group->rank() != *last) scaler_.load_state_dict(state);
}

void LossScaling::remove(const Optimizer& optimizer) {
    std::erase(optimizers_, &optimizer);
    skips_.erase(&optimizer);
    scaler_.forget(optimizer);
}

void LossScaling::begin_iteration() {
    end_iteration();
    is_in_scope_ = true;
}

void LossScaling::end_iteration() {
    is_in_scope_ = false;
    if (scaler_.has_checked_gradients()) scaler_.update();
}

// Returns whether the optimizer has a gradient on this process. If processes are stages of
// pipelines, returns whether it has a gradient on any process of the group.
bool LossScaling::has_gradients(Optimizer& optimizer) const {
    const bool own = std::ranges::any_of(optimizer.parameters(), autograd::has_gradient);
    const auto group = group_.lock();
    if (!has_stages_ || !group) return own;
    const Tensor any = tensor({own ? 1.0 : 0.0}, {.dtype = f64});
    group->all_reduce(any, dist::ReduceOp::max);
    return any.item() != 0;
}

// Resets the progress of optimizers that have stepped, because the backward pass computes new
// gradients.
void LossScaling::before_backward() {
    for (const Optimizer* optimizer : optimizers_)
        if (progress_of(scaler_, *optimizer).stage == GradScaler::Stage::stepped)
            scaler_.forget_progress(*optimizer);
}

void LossScaling::unscale(Optimizer& optimizer) {
    if (progress_of(scaler_, optimizer).stage == GradScaler::Stage::ready &&
        has_gradients(optimizer))
        scaler_.unscale_(optimizer);
}

void LossScaling::unscale_all() {
    for (Optimizer* optimizer : optimizers_) unscale(*optimizer);
}

void LossScaling::unscale(const std::vector<Tensor>& parameters) {
    std::unordered_set<const Impl*> wanted;
    for (const Tensor& parameter : parameters) wanted.insert(parameter.impl().get());
    for (Optimizer* optimizer : optimizers_)
        if (std::ranges::any_of(optimizer->parameters(),
                                [&](const Tensor& p) { return wanted.contains(p.impl().get()); }))
            unscale(*optimizer);
}

// Returns whether all optimizers have stepped in this iteration. Outside of accumulate(),
// optimizers without gradients do not count.
bool LossScaling::is_complete() const {
    return std::ranges::all_of(optimizers_, [&](Optimizer* optimizer) {
        return progress_of(scaler_, *optimizer).stage == GradScaler::Stage::stepped ||
               (!is_in_scope_ && !has_gradients(*optimizer));
    });
}

Tensor LossScaling::before_step(Optimizer& optimizer) {
    skips_.clear();
    if (!has_gradients(optimizer)) return {};
    const GradScaler::Progress before = progress_of(scaler_, optimizer);
    if (before.stage == GradScaler::Stage::stepped) scaler_.forget_progress(optimizer);
    Tensor scalars = scaler_.before_step(optimizer);
    if (before.stepped || is_complete()) scaler_.update();
    return scalars;
}

bool LossScaling::was_skipped(const Optimizer& optimizer) {
    const auto of = [&](const Optimizer* one) {
        const auto found = skips_.find(one);
        if (found != skips_.end()) return found->second;
        return skips_[one] = one->step_was_skipped();
    };
    if (std::ranges::find(optimizers_, &optimizer) != optimizers_.end()) return of(&optimizer);
    return std::ranges::any_of(optimizers_, of);
}

std::string LossScaling::stages() const {
    std::string text;
    for (const Optimizer* optimizer : optimizers_) {
        const GradScaler::Progress progress = progress_of(scaler_, *optimizer);
        text += str(" ", static_cast<int>(progress.stage), progress.checked, progress.stepped);
    }
    return text;
}

}  // namespace axle::accel
