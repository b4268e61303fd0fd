#include <utility>

#include "core/ops/index_checks.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"

namespace axle {

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
    constexpr const char* kOp = "soft_margin_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target});
    check_floating(kOp, input);
    check_compute(kOp, target, "target");
    broadcast_shapes(kOp, input.shape(), target.shape());
    const DType common = promote(input, target), wide = wide_dtype(common);
    const Tensor losses = neg(logsigmoid(mul(to(input, wide), to(target, wide))));
    return reduce_losses(losses, reduction, result_dtype(common));
}

Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                           const MarginRankingLossOptions& options) {
    constexpr const char* kOp = "margin_ranking_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&x1, &x2, &target});
    check_floating(kOp, x1, "x1");
    check_floating(kOp, x2, "x2");
    check_compute(kOp, target, "target");
    if (x1.dim() != x2.dim() || x1.dim() != target.dim())
        throw ShapeError(str(kOp, ": numbers of dimensions differ: x1 ", x1.shape(), ", x2 ",
                             x2.shape(), ", target ", target.shape()));
    broadcast_shapes(kOp, broadcast_shapes(kOp, x1.shape(), x2.shape()), target.shape());
    const DType common = promote(promote(x1, x2), promote(x1, target));
    const DType wide = wide_dtype(common);
    const Tensor losses = relu(options.margin - to(target, wide) * (to(x1, wide) - to(x2, wide)));
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingLossOptions& options) {
    constexpr const char* kOp = "hinge_embedding_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target});
    check_floating(kOp, input);
    check_compute(kOp, target, "target");
    broadcast_shapes(kOp, input.shape(), target.shape());
    const DType common = promote(input, target);
    const Tensor x = to(input, wide_dtype(common));
    const Tensor is_near = eq(target, 1), is_far = eq(target, -1);
    // A target other than 1 and -1 selects both terms, as in PyTorch.
    const Tensor losses = where(is_far, 0, x) + where(is_near, 0, relu(options.margin - x));
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                         const MultiMarginLossOptions& options) {
    constexpr const char* kOp = "multi_margin_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target});
    check_floating(kOp, input);
    check_index_dtype(kOp, target, "target");
    if (options.p != 1 && options.p != 2)
        throw ValueError(str(kOp, ": p must be 1 or 2: ", options.p));
    const bool is_single = input.dim() == 1;
    const bool fits = is_single ? target.numel() == 1 && target.dim() <= 1
                                : input.dim() == 2 && target.shape() == Shape{input.size(0)};
    if (!fits || input.size(-1) == 0)
        throw ShapeError(
            str(kOp, ": needs x [N, classes] and target [N], or [classes] and [], with at least ",
                "one class: x ", input.shape(), ", target ", target.shape()));
    const std::int64_t classes = input.size(-1), samples = target.numel();
    check_class_weight(kOp, input, options.weight, classes);
    check_index_range(kOp, target, classes);
    const DType wide = wide_dtype(input.dtype());
    const Tensor x = reshape(to(input, wide), {samples, classes});
    const Tensor goals = reshape(target, {samples, 1});
    Tensor terms = relu(x - gather(x, 1, goals) + options.margin);
    if (options.p == 2) terms = square(terms);
    const Tensor all = arange(classes, {.dtype = target.dtype(), .device = target.device()});
    Tensor losses = mean(masked_fill(terms, eq(goals, all), 0), {1});
    if (options.weight.defined())
        losses = losses * index_select(to(options.weight, wide), 0, reshape(goals, {samples}));
    losses = reshape(losses, target.shape());
    return reduce_losses(losses, options.reduction, result_dtype(input.dtype()));
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
    constexpr const char* kOp = "multilabel_margin_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target});
    check_floating(kOp, input);
    check_index_dtype(kOp, target, "target");
    if (input.dim() < 1 || input.dim() > 2 || input.shape() != target.shape() ||
        input.size(-1) == 0)
        throw ShapeError(
            str(kOp, ": needs x and target [N, classes] or [classes], with at least one class: x ",
                input.shape(), ", target ", target.shape()));
    const std::int64_t classes = input.size(-1), samples = input.dim() == 1 ? 1 : input.size(0);
    check_targets(kOp, reshape(target, {target.numel()}), classes, -1);
    const DType wide = wide_dtype(input.dtype());
    const Tensor x = reshape(to(input, wide), {samples, classes});
    const Tensor labels = reshape(target, {samples, classes});
    // Labels after the first -1 are ignored.
    const Tensor counts = eq(cumsum(lt(labels, 0), 1), 0);
    const Tensor index = masked_fill(labels, logical_not(counts), 0);
    const Tensor hits = scatter_add(zeros_like(x).detach(), 1, index, to(counts, wide));
    const Tensor pairs = logical_and(unsqueeze(counts, 2), unsqueeze(eq(hits, 0), 1));
    const Tensor terms = relu(1 - unsqueeze(gather(x, 1, index), 2) + unsqueeze(x, 1));
    Tensor losses =
        sum(masked_fill(terms, logical_not(pairs), 0), {1, 2}) / static_cast<double>(classes);
    if (input.dim() == 1) losses = reshape(losses, {});
    return reduce_losses(losses, reduction, result_dtype(input.dtype()));
}

}  // namespace axle
