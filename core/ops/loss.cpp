#include "kernels/ops/loss.h"

#include <algorithm>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/matmul.h"

namespace axle {
namespace {

// Return the dtype in which a loss is computed, and the dtype of its result. Under autocast, the
// result is f32 for f16 and bf16.
DType wide_dtype(DType t) { return t == f64 ? f64 : f32; }
DType result_dtype(DType t) { return autocast_dtype() ? wide_dtype(t) : t; }

void check_smoothing(const char* op, double smoothing) {
    if (!(smoothing >= 0 && smoothing <= 1))
        throw ValueError(str(op, ": label_smoothing must be in [0, 1]: ", smoothing));
}

// Returns the number of targets that are not ignored, as a 0-d tensor.
Tensor valid_targets(const Tensor& targets, std::int64_t ignore_index, DType dtype) {
    return to(sum(ne(targets, Scalar(ignore_index))), dtype);
}

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

// The results of linear_cross_entropy's only pass over the rows.
struct LinearLoss {
    Tensor losses;       // one loss per row, [N]
    Tensor dx, dweight;  // gradients of the sum of the losses, if requested
};

// Returns the number of rows per chunk. The logits of a chunk take about 4 MiB, but a chunk has at
// least kMinRows rows, so that reading and packing the weight and accumulating its gradient cost
// little compared to the products.
std::int64_t chunk_rows(std::int64_t classes, DType dtype) {
    constexpr std::int64_t kBytes = std::int64_t{4} << 20, kMinRows = 256;
    return std::max(kMinRows, kBytes / std::max<std::int64_t>(1, classes * size_of(dtype)));
}

// Computes the losses chunk by chunk. The gradient of the logits overwrites the logits, unless the
// dtype of the logits is wider than the dtype of x and weight.
LinearLoss linear_losses(const Tensor& x, const Tensor& weight, const Tensor& targets,
                         const CrossEntropyOptions& options, bool wants_dx, bool wants_dweight) {
    const std::int64_t n = x.size(0), classes = weight.size(0);
    const DType wide = wide_dtype(x.dtype());
    const TensorOptions as_wide = {.dtype = wide, .device = x.device()};
    const kernels::CrossEntropyParams params = {options.ignore_index, options.label_smoothing};
    LinearLoss result;
    result.losses = Tensor::empty({n}, as_wide);
    if (wants_dx) result.dx = Tensor::empty(x.shape(), as_wide);
    if (wants_dweight)
        result.dweight =
            n == 0 ? zeros(weight.shape(), as_wide) : Tensor::empty(weight.shape(), as_wide);
    const std::int64_t rows = std::min(n, chunk_rows(classes, wide));
    const Tensor all_logits = Tensor::empty({rows, classes}, as_wide);
    const Tensor all_dlogits =
        wide == x.dtype()
            ? all_logits
            : Tensor::empty({rows, classes}, {.dtype = x.dtype(), .device = x.device()});
    const Tensor all_lse = Tensor::empty({rows}, as_wide), one = ones({}, as_wide);

    for (std::int64_t first = 0; first < n; first += rows) {
        const std::int64_t count = std::min(rows, n - first);
        const Tensor part = x.narrow(0, first, count),
                     chunk_targets = targets.narrow(0, first, count);
        Tensor logits = all_logits.narrow(0, 0, count), dlogits = all_dlogits.narrow(0, 0, count);
        Tensor loss = result.losses.narrow(0, first, count), lse = all_lse.narrow(0, 0, count);
        launch(x.device(), [&](auto& on) {
            kernels::matmul(on, part.view(), weight.t().view(), logits.view());
            kernels::cross_entropy(on, logits.view(), chunk_targets.view(), params, loss.view(),
                                   lse.view());
            if (!wants_dx && !wants_dweight) return;
            kernels::cross_entropy_backward(on, logits.view(), chunk_targets.view(), lse.view(),
                                            expand(one, {count}).view(), params, dlogits.view());
            if (wants_dx) {
                Tensor dx = result.dx.narrow(0, first, count);
                kernels::matmul(on, dlogits.view(), weight.view(), dx.view());
            }
            if (wants_dweight)
                kernels::matmul(on, dlogits.t().view(), part.view(), result.dweight.view(),
                                {.accumulate = first > 0});
        });
    }
    return result;
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
    constexpr const char* kOp = "cross_entropy";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &targets});
    check_floating(kOp, input, "logits");
    check_index_dtype(kOp, targets);
    if (input.dim() != 2 || targets.dim() != 1 || input.size(0) != targets.size(0))
        throw ShapeError(str(kOp, ": needs logits [N, classes] and targets [N]: logits ",
                             input.shape(), ", targets ", targets.shape()));
    check_smoothing(kOp, options.label_smoothing);
    check_targets(kOp, targets, input.size(1), options.ignore_index);
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
    return record(kOp, to(y, result_dtype(input.dtype())), {input},
                  [logits = saved(input), targets = saved(targets), lse = saved(lse),
                   count = saved(count), options, wide](const Grads& dy, Needs) -> Grads {
                      const Tensor at = logits, divisor = count;
                      Tensor dloss = to(dy[0], wide);
                      if (divisor.defined()) dloss = div(dloss, divisor);
                      if (dloss.dim() == 0) dloss = expand(dloss, {at.size(0)});
                      return {cross_entropy_gradient(at, targets, lse, dloss, options)};
                  });
}

Tensor linear_cross_entropy(const Tensor& input, const Tensor& matrix, const Tensor& targets,
                            const CrossEntropyOptions& options) {
    constexpr const char* kOp = "linear_cross_entropy";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &matrix, &targets});
    check_floating(kOp, input);
    check_index_dtype(kOp, targets);
    if (options.reduction == Reduction::none)
        throw ValueError(str(kOp, ": reduction must be mean or sum, not none"));
    if (input.dim() != 2 || matrix.dim() != 2 || targets.dim() != 1 ||
        input.size(1) != matrix.size(1) || input.size(0) != targets.size(0))
        throw ShapeError(str(kOp, ": needs x [N, K], weight [classes, K] and targets [N]: x ",
                             input.shape(), ", weight ", matrix.shape(), ", targets ",
                             targets.shape()));
    check_smoothing(kOp, options.label_smoothing);
    check_targets(kOp, targets, matrix.size(0), options.ignore_index);
    const Tensor x = autocast(input), weight = autocast(matrix);
    check_same_dtype(kOp, x, weight, "x", "weight");
    const DType result = result_dtype(x.dtype());

    const bool is_recorded = grad_enabled();
    Tensor y, divisor;
    LinearLoss pass;
    {
        const NoGrad no_grad;
        pass = linear_losses(x, weight, targets, options, is_recorded && x.requires_grad(),
                             is_recorded && weight.requires_grad());
        y = sum(pass.losses);
        if (options.reduction == Reduction::mean) {
            divisor = valid_targets(targets, options.ignore_index, y.dtype());
            y = div(y, divisor);
        }
        y = to(y, result);
    }
    // dx and dweight are gradients of the sum of the losses, so that 16-bit gradients do not
    // underflow before loss scaling. The op is recorded with the operands from before the casts of
    // autocast.
    return record(kOp, y, {input, matrix},
                  [dx = saved(pass.dx), dweight = saved(pass.dweight), divisor = saved(divisor)](
                      const Grads& dy, Needs needs) -> Grads {
                      if (grad_enabled()) refuse_double_backward(kOp);
                      const Tensor by = divisor;
                      Tensor factor = dy[0];
                      // The divisor is at least 1, which avoids 0 / 0 if there is no valid target.
                      // In this case the gradient of the sum is 0 too.
                      if (by.defined())
                          factor = div(to(factor, by.dtype()), clamp(by, 1.0, std::nullopt));
                      return {needs[0] ? mul(dx, factor) : Tensor(),
                              needs[1] ? mul(dweight, factor) : Tensor()};
                  });
}

namespace {

Tensor reduce(const Tensor& losses, Reduction reduction) {
    if (reduction == Reduction::none) return losses;
    return reduction == Reduction::mean ? mean(losses) : sum(losses);
}

// Checks the operands of a binary cross entropy.
void check_binary(const char* op, const Tensor& x, const Tensor& target,
                  const BinaryCrossEntropyOptions& options) {
    check_device(op, {&x, &target});
    check_floating(op, x);
    check_floating(op, target, "target");
    if (x.shape() != target.shape())
        throw ShapeError(str(op, ": shapes differ: x ", x.shape(), ", target ", target.shape()));
    for (const Tensor* factor : {&options.weight, &options.pos_weight}) {
        if (!factor->defined()) continue;
        check_device(op, {&x, factor});
        if (broadcast_shapes(op, x.shape(), factor->shape()) != x.shape())
            throw ShapeError(str(op, ": ", factor == &options.weight ? "weight " : "pos_weight ",
                                 factor->shape(), " cannot be broadcast to x ", x.shape()));
    }
}

// Returns losses times the weight, reduced and converted to the result's dtype.
Tensor finish_binary(const Tensor& losses, const BinaryCrossEntropyOptions& options, DType dtype) {
    const Tensor weighted =
        options.weight.defined() ? mul(losses, to(options.weight, losses.dtype())) : losses;
    return to(reduce(weighted, options.reduction), dtype);
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

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
    const profiler::OpScope scope("mse_loss");
    check_device("mse_loss", {&x, &target});
    check_floating("mse_loss", x);
    check_floating("mse_loss", target, "target");
    if (x.shape() != target.shape())
        throw ShapeError(
            str("mse_loss: shapes differ: x ", x.shape(), ", target ", target.shape()));
    const Tensor difference = sub(autocast_to_f32(x), autocast_to_f32(target));
    return reduce(mul(difference, difference), reduction);
}

}  // namespace axle
