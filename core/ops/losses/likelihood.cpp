#include <cmath>
#include <numbers>

#include "core/autograd/autograd.h"
#include "core/ops/index_checks.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"

namespace axle {

TargetLosses target_losses(const Tensor& log_probs, const Tensor& targets, int dim,
                           const Tensor& weight, std::int64_t ignore_index, DType wide) {
    const Tensor ignored = eq(targets, Scalar(ignore_index));
    const Tensor classes = masked_fill(targets, ignored, 0);
    const Tensor picked = gather(log_probs, dim, unsqueeze(classes, dim));
    const Tensor losses = masked_fill(neg(to(squeeze(picked, dim), wide)), ignored, 0);
    if (!weight.defined()) return {losses, valid_targets(targets, ignore_index, wide)};
    const Tensor of_targets =
        index_select(to(weight, wide), 0, reshape(classes, {classes.numel()}));
    const Tensor factors = masked_fill(reshape(of_targets, targets.shape()), ignored, 0);
    return {mul(losses, factors), sum(factors)};
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& targets, const NllLossOptions& options) {
    constexpr const char* kOp = "nll_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&log_probs, &targets});
    check_floating(kOp, log_probs, "log_probs");
    check_index_dtype(kOp, targets, "targets");
    const int dim = log_probs.dim() == 1 ? 0 : 1;
    Shape expected = log_probs.shape();
    if (log_probs.dim() > 0) expected.erase(dim);
    if (log_probs.dim() == 0 || targets.shape() != expected)
        throw ShapeError(str(kOp, ": needs log_probs [N, classes, ...] and targets [N, ...], or ",
                             "[classes] and []: log_probs ", log_probs.shape(), ", targets ",
                             targets.shape()));
    const std::int64_t classes = log_probs.size(dim);
    check_class_weight(kOp, log_probs, options.weight, classes);
    check_targets(kOp, reshape(targets, {targets.numel()}), classes, options.ignore_index);
    const auto [losses, divisor] =
        target_losses(log_probs, targets, dim, options.weight, options.ignore_index,
                      wide_dtype(log_probs.dtype()));
    const DType result = result_dtype(log_probs.dtype());
    if (options.reduction == Reduction::mean) return to(div(sum(losses), divisor), result);
    return reduce_losses(losses, options.reduction, result);
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options) {
    const profiler::OpScope scope("kl_div");
    check_device("kl_div", {&input, &target});
    check_floating("kl_div", input);
    check_floating("kl_div", target, "target");
    broadcast_shapes("kl_div", input.shape(), target.shape());
    const DType common = promote(input, target), wide = wide_dtype(common);
    const Tensor x = to(input, wide), t = to(target, wide);
    Tensor losses;
    if (options.log_target) {
        losses = mul(exp(t), sub(t, x));
    } else {
        // The limit of t ln t at 0 is 0.
        const Tensor positive = masked_fill(t, eq(t.detach(), 0), 1);
        losses = mul(t, sub(log(positive), x));
    }
    const DType result = result_dtype(common);
    switch (options.reduction) {
        case KlDivReduction::none:
            return to(losses, result);
        case KlDivReduction::mean:
            return to(mean(losses), result);
        case KlDivReduction::sum:
            return to(sum(losses), result);
        case KlDivReduction::batchmean:
            break;
    }
    const double samples = input.dim() == 0 ? 1 : static_cast<double>(input.size(0));
    return to(div(sum(losses), samples), result);
}

namespace {

// Returns var in a shape that broadcasts with x. Throws ShapeError if the shape of var does not
// fit.
Tensor aligned_variance(const char* op, const Tensor& x, const Tensor& var) {
    if (var.shape() == x.shape()) return var;
    if (var.dim() == x.dim() - 1) {
        Shape shape = var.shape();
        shape.push_back(x.size(-1));
        if (shape == x.shape()) return unsqueeze(var, -1);
    }
    int shared = 0;  // dimensions in which var has one value for all elements of x
    bool fits = var.dim() == x.dim();
    for (int d = 0; fits && d < x.dim(); ++d) {
        if (var.size(d) == x.size(d)) continue;
        fits = var.size(d) == 1;
        ++shared;
    }
    if (!fits || shared != 1)
        throw ShapeError(str(op, ": var must have the shape of x, possibly without the last ",
                             "dimension or with one dimension of size 1: x ", x.shape(), ", var ",
                             var.shape()));
    return var;
}

}  // namespace

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNllLossOptions& options) {
    constexpr const char* kOp = "gaussian_nll_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target, &variance});
    check_floating(kOp, input);
    check_compute(kOp, target, "target");
    check_floating(kOp, variance, "var");
    broadcast_shapes(kOp, input.shape(), target.shape());
    if (variance.device().is_cpu() && variance.numel() > 0) {
        const double least = min(variance.detach()).item();
        if (least < 0) throw ValueError(str(kOp, ": var must be at least 0: ", least));
    }
    const DType common = promote(promote(input, target), promote(input, variance));
    const DType wide = wide_dtype(common);
    const Tensor x = to(input, wide), t = to(target, wide);
    const Tensor given = to(aligned_variance(kOp, input, variance), wide);
    Tensor var;
    {
        const NoGrad no_grad;
        var = clamp(given, options.eps, std::nullopt);
    }
    var = record(kOp, var, {given}, [](const Grads& dy, Needs) -> Grads { return {dy[0]}; });
    Tensor losses = 0.5 * (log(var) + square(x - t) / var);
    if (options.full) losses = losses + 0.5 * std::log(2 * std::numbers::pi);
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, double var,
                         const GaussianNllLossOptions& options) {
    check_device("gaussian_nll_loss", {&input, &target});
    check_floating("gaussian_nll_loss", input);
    if (!(var >= 0)) throw ValueError(str("gaussian_nll_loss: var must be at least 0: ", var));
    return gaussian_nll_loss(input, target, full_like(input, var), options);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target,
                        const PoissonNllLossOptions& options) {
    constexpr const char* kOp = "poisson_nll_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target});
    check_floating(kOp, input);
    check_compute(kOp, target, "target");
    broadcast_shapes(kOp, input.shape(), target.shape());
    const DType common = promote(input, target), wide = wide_dtype(common);
    const Tensor x = to(input, wide), t = to(target, wide);
    Tensor losses = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
    if (options.full) {
        const Tensor small = le(t.detach(), 1);
        const Tensor n = masked_fill(t, small, 1);
        const Tensor stirling = n * log(n) - n + 0.5 * log(2 * std::numbers::pi * n);
        losses = losses + masked_fill(stirling, small, 0);
    }
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

}  // namespace axle
