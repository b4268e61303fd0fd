#include <utility>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops/index_checks.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/loss.h"

namespace axle {
namespace {

constexpr const char* kOp = "cross_entropy";

// Returns the gradient of the losses with respect to the logits, composed of differentiable ops.
// dloss is [N].
Tensor composed_gradient(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                         const CrossEntropyOptions& options) {
    const Tensor ignored = eq(targets, Scalar(options.ignore_index));
    const auto classes = static_cast<double>(logits.size(1));
    const Tensor hot = to(one_hot(masked_fill(targets, ignored, 0), logits.size(1)), dloss.dtype());
    const Tensor target_probs =
        hot * (1 - options.label_smoothing) + options.label_smoothing / classes;
    const Tensor weight = unsqueeze(masked_fill(dloss, ignored, 0), 1);
    return (softmax(to(logits, dloss.dtype())) - target_probs) * weight;
}

Tensor cross_entropy_gradient(const Tensor& logits, const Tensor& targets, const Tensor& lse,
                              const Tensor& dloss, const CrossEntropyOptions& options) {
    if (grad_enabled()) return composed_gradient(logits, targets, dloss, options);
    Tensor dlogits = empty_like(logits);
    launch(logits.device(), [&](auto& on) {
        kernels::cross_entropy_backward(on, logits.view(), targets.view(), lse.view(), dloss.view(),
                                        {options.ignore_index, options.label_smoothing},
                                        dlogits.view());
    });
    return dlogits;
}

// Returns the cross entropy of logits [N, C] and valid targets [N] without class weights, in the
// dtype `result`.
Tensor fused_cross_entropy(const Tensor& input, const Tensor& targets,
                           const CrossEntropyOptions& options, DType result) {
    const DType wide = wide_dtype(input.dtype());
    const TensorOptions as_wide = {.dtype = wide, .device = input.device()};
    Tensor y = Tensor::empty({input.size(0)}, as_wide), lse = empty_like(y), count;
    launch(input.device(), [&](auto& on) {
        kernels::cross_entropy(on, input.view(), targets.view(),
                               {options.ignore_index, options.label_smoothing}, y.view(),
                               lse.view());
    });
    if (options.reduction != Reduction::none) y = sum(y);
    if (options.reduction == Reduction::mean) {
        count = valid_targets(targets, options.ignore_index, wide);
        y = div(y, count);
    }
    return record(kOp, to(y, result), {input},
                  [logits = saved(input), targets = saved(targets), lse = saved(lse),
                   count = saved(count), options, wide](const Grads& dy, Needs) -> Grads {
                      const Tensor at = logits, divisor = count;
                      Tensor dloss = to(dy[0], wide);
                      if (divisor.defined()) dloss = div(dloss, divisor);
                      if (dloss.dim() == 0) dloss = expand(dloss, {at.size(0)});
                      return {cross_entropy_gradient(at, targets, lse, dloss, options)};
                  });
}

// Returns x [N, C, ...] (or [C]) as `rows` rows [rows, C].
Tensor rows_of_classes(const Tensor& x, std::int64_t rows) {
    if (x.dim() == 1) return unsqueeze(x, 0);
    if (x.dim() == 2) return x;
    Dims order = 0;
    for (int d = 2; d < x.dim(); ++d) order.push_back(d);
    order.push_back(1);
    return reshape(permute(x, order), {rows, x.size(1)});
}

// Returns the cross entropy with class weights.
Tensor weighted_cross_entropy(const Tensor& input, const Tensor& targets,
                              const CrossEntropyOptions& options) {
    const DType wide = wide_dtype(input.dtype());
    const Tensor rows = rows_of_classes(input, targets.numel()),
                 goals = reshape(targets, {targets.numel()});
    const Tensor weight = to(options.weight, wide);
    const Tensor factors = weights_of_targets(weight, goals, options.ignore_index);
    const double smoothing = options.label_smoothing;
    Tensor losses =
        factors * fused_cross_entropy(
                      rows, goals,
                      {.ignore_index = options.ignore_index, .reduction = Reduction::none}, wide);
    if (smoothing > 0) {
        const Tensor ignored = eq(goals, Scalar(options.ignore_index));
        const Tensor all = neg(sum(log_softmax(to(rows, wide)) * weight, {1}));
        const auto classes = static_cast<double>(rows.size(1));
        losses = losses * (1 - smoothing) + masked_fill(all, ignored, 0) * (smoothing / classes);
    }
    const DType result = result_dtype(input.dtype());
    if (options.reduction == Reduction::mean) return to(div(sum(losses), sum(factors)), result);
    if (options.reduction == Reduction::sum) return to(sum(losses), result);
    return to(reshape(losses, targets.shape()), result);
}

// Returns the cross entropy of class probabilities.
Tensor cross_entropy_of_probabilities(const Tensor& input, const Tensor& targets,
                                      const CrossEntropyOptions& options) {
    check_same_shape(kOp, input, targets);
    if (options.ignore_index >= 0)
        throw ValueError(str(kOp, ": ignore_index needs class indices as targets, not float: ",
                             options.ignore_index));
    const DType common = promote(input, targets), wide = wide_dtype(common);
    const int dim = input.dim() == 1 ? 0 : 1;
    Tensor goals = to(targets, wide);
    const double smoothing = options.label_smoothing;
    if (smoothing > 0)
        goals = goals * (1 - smoothing) + smoothing / static_cast<double>(input.size(dim));
    if (options.weight.defined()) {
        Shape per_class = {input.size(dim)};
        for (int d = dim + 1; d < input.dim(); ++d) per_class.push_back(1);
        goals = goals * reshape(to(options.weight, wide), per_class);
    }
    const Tensor losses = neg(sum(log_softmax(to(input, wide), dim) * goals, {dim}));
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

}  // namespace

void check_targets(const char* op, const Tensor& targets, std::int64_t classes,
                   std::int64_t ignore_index) {
    std::int64_t row = -1;
    launch(targets.device(), [&]<class On>(On& on) {
        if constexpr (std::is_same_v<On, kernels::Cpu>)
            row = kernels::first_bad_target(targets.view(), classes, ignore_index);
        else
            kernels::check_targets(on, targets.view(), classes, ignore_index);
    });
    if (row < 0) return;
    const std::int64_t target = targets[row].item_int();
    throw IndexError(str(op, ": target out of range: ", target, " in row ", row, ", with ", classes,
                         " classes"));
}

Tensor cross_entropy(const Tensor& input, const Tensor& targets,
                     const CrossEntropyOptions& options) {
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &targets});
    check_floating(kOp, input, "logits");
    check_smoothing(kOp, options.label_smoothing);
    if (input.dim() == 0)
        throw ShapeError(
            str(kOp, ": needs logits [N, classes, ...] or [classes]: logits ", input.shape()));
    const int dim = input.dim() == 1 ? 0 : 1;
    check_class_weight(kOp, input, options.weight, input.size(dim));
    if (is_floating(targets.dtype()) && targets.dim() == input.dim())
        return cross_entropy_of_probabilities(input, targets, options);
    check_index_dtype(kOp, targets);
    Shape expected = input.shape();
    expected.erase(dim);
    if (targets.shape() != expected)
        throw ShapeError(str(kOp, ": needs logits [N, classes, ...] and targets [N, ...], or ",
                             "probabilities of the logits' shape: logits ", input.shape(),
                             ", targets ", targets.shape()));
    const Tensor goals = reshape(targets, {targets.numel()});
    check_targets(kOp, goals, input.size(dim), options.ignore_index);
    if (options.weight.defined()) return weighted_cross_entropy(input, targets, options);
    const Tensor losses = fused_cross_entropy(rows_of_classes(input, targets.numel()), goals,
                                              options, result_dtype(input.dtype()));
    return options.reduction == Reduction::none ? reshape(losses, targets.shape()) : losses;
}

}  // namespace axle
