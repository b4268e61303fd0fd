#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Throws ShapeError unless the factors are undefined or can be broadcast to x.
void check_weight(const char* op, const Tensor& x, const Tensor& weight, const char* name) {
    if (!weight.defined()) return;
    check_device(op, {&x, &weight});
    if (broadcast_shapes(op, x.shape(), weight.shape()) != x.shape())
        throw ShapeError(
            str(op, ": ", name, weight.shape(), " cannot be broadcast to x ", x.shape()));
}

// Throws DTypeError unless x and target are floating, and ShapeError unless target has x's shape
// and the weights can be broadcast to it.
void check_binary(const char* op, const Tensor& x, const Tensor& target,
                  const BinaryCrossEntropyOptions& options) {
    check_device(op, {&x, &target});
    check_floating(op, x);
    check_floating(op, target, "target");
    if (x.shape() != target.shape())
        throw ShapeError(str(op, ": shapes differ: x ", x.shape(), ", target ", target.shape()));
    check_weight(op, x, options.weight, "weight ");
    check_weight(op, x, options.pos_weight, "pos_weight ");
}

// Returns the losses, times the weight if it is defined, reduced and converted to dtype.
Tensor finish_binary(const Tensor& losses, const BinaryCrossEntropyOptions& options, DType dtype) {
    const Tensor weighted =
        options.weight.defined() ? mul(losses, to(options.weight, losses.dtype())) : losses;
    return reduce_losses(weighted, options.reduction, dtype);
}

// Throws ValueError unless all elements are in [0, 1]. Elements on a GPU are not checked, because
// reading them would wait for the GPU.
void check_probabilities(const char* op, const char* name, const Tensor& x) {
    if (!x.device().is_cpu()) return;
    const Tensor p = x.detach();
    const Tensor inside = mul(p >= 0, p <= 1);
    if (sum(inside).item() == static_cast<double>(p.numel())) return;
    const std::int64_t first = argmin(to(reshape(inside, -1), i64), 0).item_int();
    throw ValueError(str(op, ": ", name, " must be in [0, 1]: ", reshape(p, -1)[first].item(),
                         " in a tensor of shape ", p.shape(),
                         "; use binary_cross_entropy_with_logits for logits"));
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const BinaryCrossEntropyOptions& options) {
    constexpr const char* kOp = "binary_cross_entropy";
    const profiler::OpScope scope(kOp);
    check_binary(kOp, input, target, options);
    if (options.pos_weight.defined())
        throw UsageError(str(kOp, ": pos_weight needs binary_cross_entropy_with_logits"));
    check_probabilities(kOp, "probabilities", input);
    const DType wide = wide_dtype(input.dtype());
    const Tensor p = to(input, wide), t = to(target, wide);
    const auto logs = [](const Tensor& at) {
        const NoGrad no_grad;
        return std::pair(clamp(log(at), -100.0, std::nullopt),
                         clamp(log1p(neg(at)), -100.0, std::nullopt));
    };
    Tensor losses;
    {
        const NoGrad no_grad;
        const auto [log_p, log_q] = logs(p);
        losses = (t - 1) * log_q - t * log_p;
    }
    losses = record(kOp, losses, {p, t},
                    [p = saved(p), t = saved(t), logs](const Grads& dy, Needs needs) {
                        const Tensor at = p, goal = t;
                        Grads d(2);
                        if (needs[0])
                            d[0] = dy[0] * (at - goal) / clamp((1 - at) * at, 1e-12, std::nullopt);
                        if (needs[1] && grad_enabled()) {
                            d[1] = dy[0] * (clamp(log(1 - at), -100.0, std::nullopt) -
                                            clamp(log(at), -100.0, std::nullopt));
                        } else if (needs[1]) {
                            const auto [log_p, log_q] = logs(at);
                            d[1] = dy[0] * (log_q - log_p);
                        }
                        return d;
                    });
    return finish_binary(losses, options, result_dtype(input.dtype()));
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options) {
    constexpr const char* kOp = "binary_cross_entropy_with_logits";
    const profiler::OpScope scope(kOp);
    check_binary(kOp, input, target, options);
    const DType wide = wide_dtype(input.dtype());
    const Tensor x = to(input, wide), t = to(target, wide);
    const Tensor positive = options.pos_weight.defined() ? mul(t, to(options.pos_weight, wide)) : t;
    // The loss is -positive * logsigmoid(x) - (1 - t) * logsigmoid(-x). `t` and `positive` are
    // inputs of the recorded op, so that targets and pos_weight can have gradients.
    Tensor losses;
    {
        const NoGrad no_grad;
        const Tensor tail = log1p(exp(neg(abs(x))));
        losses = positive * (tail + relu(neg(x))) + (1 - t) * (tail + relu(x));
    }
    losses = record(
        kOp, losses, {x, t, positive},
        [x = saved(x), t = saved(t), positive = saved(positive)](const Grads& dy, Needs needs) {
            const Tensor at = x;
            Grads d(3);
            if (needs[0])
                d[0] = dy[0] * ((1 - t.get()) * sigmoid(at) - positive.get() * sigmoid(neg(at)));
            if (needs[1]) d[1] = dy[0] * logsigmoid(neg(at));
            if (needs[2]) d[2] = neg(dy[0] * logsigmoid(at));
            return d;
        });
    return finish_binary(losses, options, result_dtype(input.dtype()));
}

Tensor sigmoid_focal_loss(const Tensor& input, const Tensor& target,
                          const SigmoidFocalLossOptions& options) {
    constexpr const char* kOp = "sigmoid_focal_loss";
    const profiler::OpScope scope(kOp);
    check_binary(kOp, input, target, {});
    const DType common = promote(input, target), wide = wide_dtype(common);
    const Tensor x = to(input, wide), t = to(target, wide);
    // 1 minus the probability of the target.
    const Tensor miss = t * sigmoid(neg(x)) + (1 - t) * sigmoid(x);
    Tensor losses = binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::none}) *
                    pow(miss, options.gamma);
    if (options.alpha >= 0) losses = (options.alpha * t + (1 - options.alpha) * (1 - t)) * losses;
    return reduce_losses(losses, options.reduction, result_dtype(common));
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginLossOptions& options) {
    constexpr const char* kOp = "multilabel_soft_margin_loss";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &target});
    check_floating(kOp, input);
    check_compute(kOp, target, "target");
    check_same_shape(kOp, input, target);
    check_weight(kOp, input, options.weight, "weight ");
    if (input.dim() == 0) throw ShapeError(str(kOp, ": needs x [..., classes]: x ", input.shape()));
    const DType common = promote(input, target), wide = wide_dtype(common);
    const Tensor losses =
        binary_cross_entropy_with_logits(to(input, wide), to(target, wide),
                                         {.weight = options.weight, .reduction = Reduction::none});
    return reduce_losses(mean(losses, {-1}), options.reduction, result_dtype(common));
}

}  // namespace axle
