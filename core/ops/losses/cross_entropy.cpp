#include <utility>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops/index_checks.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/loss.h"

namespace axle {
namespace {

constexpr const char* kCrossEntropy = "cross_entropy";

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

// Returns the cross entropy of logits [N, C] and valid targets [N] without class weights.
Tensor fused_cross_entropy(const Tensor& input, const Tensor& targets,
                           const CrossEntropyOptions& options) {
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
    return record(kCrossEntropy, to(y, result_dtype(input.dtype())), {input},
                  [logits = saved(input), targets = saved(targets), lse = saved(lse),
                   count = saved(count), options, wide](const Grads& dy, Needs) -> Grads {
                      const Tensor at = logits, divisor = count;
                      Tensor dloss = to(dy[0], wide);
                      if (divisor.defined()) dloss = div(dloss, divisor);
                      if (dloss.dim() == 0) dloss = expand(dloss, {at.size(0)});
                      return {cross_entropy_gradient(at, targets, lse, dloss, options)};
                  });
}

// Returns the weights [C] in a shape that broadcasts to `dims` dimensions with the classes in
// dimension dim.
Tensor along_classes(const Tensor& weight, int dim, int dims) {
    Shape shape = weight.shape();
    for (int d = dim + 1; d < dims; ++d) shape.push_back(1);
    return reshape(weight, shape);
}

// Returns the cross entropy of valid targets for class weights and logits of any shape.
Tensor composed_cross_entropy(const Tensor& input, const Tensor& targets, int dim,
                              const CrossEntropyOptions& options) {
    const DType wide = wide_dtype(input.dtype());
    const Tensor log_probs = log_softmax(to(input, wide), dim);
    auto [losses, divisor] =
        target_losses(log_probs, targets, dim, options.weight, options.ignore_index, wide);
    const double smoothing = options.label_smoothing;
    if (smoothing > 0) {
        const Tensor weighted =
            options.weight.defined()
                ? log_probs * along_classes(to(options.weight, wide), dim, input.dim())
                : log_probs;
        const Tensor ignored = eq(targets, Scalar(options.ignore_index));
        const Tensor all = masked_fill(neg(sum(weighted, {dim})), ignored, 0);
        losses =
            losses * (1 - smoothing) + all * (smoothing / static_cast<double>(input.size(dim)));
    }
    const DType result = result_dtype(input.dtype());
    if (options.reduction == Reduction::mean) return to(div(sum(losses), divisor), result);
    return reduce_losses(losses, options.reduction, result);
}

// Returns the cross entropy of class probabilities. Throws ShapeError if the shapes differ, and
// ValueError unless ignore_index is negative.
Tensor cross_entropy_of_probabilities(const Tensor& input, const Tensor& targets,
                                      const CrossEntropyOptions& options) {
    check_same_shape(kCrossEntropy, input, targets);
    if (options.ignore_index >= 0)
        throw ValueError(
            str(kCrossEntropy,
                ": ignore_index must be negative if the targets are class probabilities: ",
                options.ignore_index));
    const DType common = promote(input, targets), wide = wide_dtype(common);
    const int dim = input.dim() == 1 ? 0 : 1;
    Tensor goals = to(targets, wide);
    const double smoothing = options.label_smoothing;
    if (smoothing > 0)
        goals = goals * (1 - smoothing) + smoothing / static_cast<double>(input.size(dim));
    if (options.weight.defined())
        goals = goals * along_classes(to(options.weight, wide), dim, input.dim());
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
    const profiler::OpScope scope(kCrossEntropy);
    check_device(kCrossEntropy, {&input, &targets});
    check_floating(kCrossEntropy, input, "logits");
    check_smoothing(kCrossEntropy, options.label_smoothing);
    if (input.dim() == 0)
        throw ShapeError(str(kCrossEntropy,
                             ": needs logits [N, classes, ...] or [classes]: logits ",
                             input.shape()));
    const int dim = input.dim() == 1 ? 0 : 1;
    check_class_weight(kCrossEntropy, input, options.weight, input.size(dim));
    if (is_floating(targets.dtype()) && targets.dim() == input.dim())
        return cross_entropy_of_probabilities(input, targets, options);
    check_index_dtype(kCrossEntropy, targets, "targets");
    Shape expected = input.shape();
    expected.erase(dim);
    if (targets.shape() != expected)
        throw ShapeError(str(kCrossEntropy,
                             ": needs logits [N, classes, ...] and targets [N, ...], ",
                             "or [classes] and [], or probabilities of the logits' shape: logits ",
                             input.shape(), ", targets ", targets.shape()));
    const Tensor goals = reshape(targets, {targets.numel()});
    check_targets(kCrossEntropy, goals, input.size(dim), options.ignore_index);
    if (options.weight.defined() || input.dim() > 2)
        return composed_cross_entropy(input, targets, dim, options);
    const Tensor losses =
        fused_cross_entropy(input.dim() == 1 ? unsqueeze(input, 0) : input, goals, options);
    return options.reduction == Reduction::none ? reshape(losses, targets.shape()) : losses;
}

}  // namespace axle
