#include "core/ops/losses/loss_helpers.h"
#include "core/ops/pointwise.h"

namespace axle {
namespace {

void check_pair(const char* op, const Tensor& x, const Tensor& target) {
    check_device(op, {&x, &target});
    check_floating(op, x);
    check_floating(op, target, "target");
    check_same_shape(op, x, target);
}

void check_element_weight(const char* op, const Tensor& x, const Tensor& weight) {
    if (!weight.defined()) return;
    check_device(op, {&x, &weight});
    check_floating(op, weight, "weight");
    if (weight.shape() != x.shape())
        throw ShapeError(str(op, ": shapes differ: x ", x.shape(), ", weight ", weight.shape()));
}

// Returns the differences of two tensors in the dtype in which their loss is computed.
Tensor difference_of(const Tensor& x, const Tensor& target) {
    const DType wide = wide_dtype(promote(x, target));
    return sub(to(x, wide), to(target, wide));
}

// Returns the losses, times the weight if it is defined, reduced and converted to the dtype
// `result`. A weighted mean divides by the sum of the weights.
Tensor reduce_weighted(const Tensor& losses, const Tensor& weight, Reduction reduction,
                       DType result) {
    if (!weight.defined()) return reduce_losses(losses, reduction, result);
    const Tensor factor = to(weight, losses.dtype());
    const Tensor weighted = mul(losses, factor);
    if (reduction == Reduction::mean) return to(div(sum(weighted), sum(factor)), result);
    return reduce_losses(weighted, reduction, result);
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& weight) {
    const profiler::OpScope scope("mse_loss");
    check_pair("mse_loss", x, target);
    check_element_weight("mse_loss", x, weight);
    const Tensor difference = sub(autocast_to_f32(x), autocast_to_f32(target));
    return reduce_weighted(mul(difference, difference), weight, reduction, difference.dtype());
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& weight) {
    const profiler::OpScope scope("l1_loss");
    check_pair("l1_loss", x, target);
    check_element_weight("l1_loss", x, weight);
    return reduce_weighted(abs(difference_of(x, target)), weight, reduction,
                           result_dtype(promote(x, target)));
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& options) {
    constexpr const char* kOp = "smooth_l1_loss";
    const profiler::OpScope scope(kOp);
    check_pair(kOp, x, target);
    if (!(options.beta >= 0))
        throw ValueError(str(kOp, ": beta must be at least 0: ", options.beta));
    const Tensor d = difference_of(x, target);
    const Tensor losses =
        options.beta == 0
            ? abs(d)
            : unary(kOp, kernels::formula::SmoothL1{.beta = options.beta, .scale = 1}, d);
    return reduce_losses(losses, options.reduction, result_dtype(promote(x, target)));
}

Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossOptions& options) {
    constexpr const char* kOp = "huber_loss";
    const profiler::OpScope scope(kOp);
    check_pair(kOp, x, target);
    check_element_weight(kOp, x, options.weight);
    if (!(options.delta > 0))
        throw ValueError(str(kOp, ": delta must be positive: ", options.delta));
    Tensor losses =
        unary(kOp, kernels::formula::SmoothL1{.beta = options.delta, .scale = options.delta},
              difference_of(x, target));
    if (options.weight.defined()) losses = mul(losses, to(options.weight, losses.dtype()));
    return reduce_losses(losses, options.reduction, result_dtype(promote(x, target)));
}

}  // namespace axle
