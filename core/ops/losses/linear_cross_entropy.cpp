#include <algorithm>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops/index_checks.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/matmul.h"

namespace axle {
namespace {

// The results of linear_cross_entropy's only pass over the rows.
struct LinearLoss {
    Tensor losses;       // one loss per row, [N]
    Tensor dx, dweight;  // gradients of the sum of the losses times `scale`, if requested
};

// Returns the number of rows per chunk. The logits of a chunk take at most 4 MiB, unless this is
// less than kMinRows rows: with fewer rows, reading the weight and accumulating its gradient would
// cost much compared to the products.
std::int64_t chunk_rows(std::int64_t classes, DType dtype) {
    constexpr std::int64_t kBytes = std::int64_t{4} << 20, kMinRows = 256;
    return std::max(kMinRows, kBytes / std::max<std::int64_t>(1, classes * size_of(dtype)));
}

// Computes the losses chunk by chunk. The gradient of the logits overwrites the logits, unless the
// dtype of the logits is wider than the dtype of x and weight. `scale` is a 0-d tensor of the wide
// dtype.
LinearLoss linear_losses(const Tensor& x, const Tensor& weight, const Tensor& targets,
                         const Tensor& scale, const CrossEntropyOptions& options, bool wants_dx,
                         bool wants_dweight) {
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
    const Tensor all_lse = Tensor::empty({rows}, as_wide);

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
                                            expand(scale, {count}).view(), params, dlogits.view());
            if (wants_dx) {
                Tensor dx = result.dx.narrow(0, first, count);
                kernels::matmul(on, dlogits.view(), weight.view(), dx.view());
            }
            if (wants_dweight)
                kernels::matmul(on, dlogits.t().view(), part.view(), result.dweight.view(),
                                {.accumulate = first > 0, .bypasses_caches = true});
        });
    }
    return result;
}

// Returns gradient * factor, for a 0-d factor. If the factor is 1, returns the gradient itself,
// unless reading the factor would wait for a GPU.
Tensor scaled(const Tensor& gradient, const Tensor& factor) {
    if (factor.device().is_cpu() && factor.item() == 1) return gradient;
    return mul(gradient, factor);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& matrix, const Tensor& targets,
                            const CrossEntropyOptions& options) {
    constexpr const char* kOp = "linear_cross_entropy";
    const profiler::OpScope scope(kOp);
    check_device(kOp, {&input, &matrix, &targets});
    check_floating(kOp, input);
    check_index_dtype(kOp, targets, "targets");
    if (options.weight.defined())
        throw UsageError(
            str(kOp,
                ": class weights are not supported; use cross_entropy(linear(x, weight), "
                "...)"));
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
    const DType wide = wide_dtype(x.dtype());
    Tensor y, divisor;
    LinearLoss pass;
    {
        const NoGrad no_grad;
        Tensor scale = ones({}, {.dtype = wide, .device = x.device()}), count;
        if (options.reduction == Reduction::mean) {
            count = valid_targets(targets, options.ignore_index, wide);
            // The divisor is at least 1, which avoids 0 / 0 if there is no valid target. In this
            // case the gradient of the sum is 0 too. In f16, the backward pass divides, so that
            // gradients do not underflow before they are multiplied by the scale of the loss.
            divisor = clamp(count, 1.0, std::nullopt);
            if (x.dtype() != f16) scale = div(scale, std::exchange(divisor, {}));
        }
        pass = linear_losses(x, weight, targets, scale, options, is_recorded && x.requires_grad(),
                             is_recorded && weight.requires_grad());
        y = sum(pass.losses);
        if (count.defined()) y = div(y, count);
        y = to(y, result);
    }
    // The op is recorded with the operands from before the casts of autocast.
    return record(kOp, y, {input, matrix},
                  [dx = saved(pass.dx), dweight = saved(pass.dweight), divisor = saved(divisor)](
                      const Grads& dy, Needs needs) -> Grads {
                      if (grad_enabled()) refuse_double_backward(kOp);
                      const Tensor by = divisor;
                      const Tensor factor = by.defined() ? div(to(dy[0], by.dtype()), by) : dy[0];
                      return {needs[0] ? scaled(dx, factor) : Tensor(),
                              needs[1] ? scaled(dweight, factor) : Tensor()};
                  });
}

}  // namespace axle
