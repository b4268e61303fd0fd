// Backward that updates: what Accelerate calls lomo_backward.
#include "optim/lomo.h"

#include <memory>
#include <vector>

#include "accel/process/accelerator_state.h"

namespace axle::inline v0::accel {

void Accelerator::lomo_backward(const Tensor& loss, std::optional<double> learning_rate) {
    if (!learning_rate)
        throw ValueError(
            "lomo_backward: no learning rate is given: lomo_backward(loss, learning_rate)");
    std::vector<optim::FusedOptimizer*> optimizers;
    for (optim::Optimizer* optimizer : optimizers_)
        if (auto* const fused = dynamic_cast<optim::FusedOptimizer*>(optimizer))
            optimizers.push_back(fused);
    if (optimizers.empty())
        throw ValueError("lomo_backward: no optim::Lomo or optim::AdaLomo has been prepared");
    if (state_->scaling)
        throw UsageError(
            "lomo_backward: not with the scaler of fp16, for gradients are applied before all are "
            "known to be finite; use bf16");
    // An update needs everybody's gradients, also between two updates of other optimizers.
    std::vector<std::unique_ptr<SyncScope>> scopes;
    for (const auto& replicas : replicas_)
        if (replicas) scopes.push_back(std::make_unique<SyncScope>(replicas.get()));
    optim::FusedOptimizer::fused_backward(optimizers, loss, *learning_rate, !scopes.empty());
}

}  // namespace axle::inline v0::accel
