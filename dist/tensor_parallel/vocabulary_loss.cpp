#include "dist/tensor_parallel/vocabulary_loss.h"

#include <algorithm>
#include <limits>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/profiler/profiler.h"
#include "dist/ops/collective_ops.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/matmul.h"

namespace axle::dist {
namespace {

constexpr const char* kOp = "vocabulary_cross_entropy";
constexpr std::int64_t kIgnored = -100;

using Group = std::shared_ptr<ProcessGroup>;

void check_arguments(const Tensor& x, const Tensor& weight, bool has_bias, const Tensor& targets,
                     std::int64_t vocabulary) {
    check_device(kOp, {&x, &weight, &targets});
    check_floating(kOp, x);
    check_index_dtype(kOp, targets, "targets");
    if (x.dim() != 2 || weight.dim() != 2 || targets.dim() != 1 || x.size(1) != weight.size(1) ||
        x.size(0) != targets.size(0))
        throw ShapeError(str(kOp, ": needs x [N, K], weight [n, K] and targets [N]: x ", x.shape(),
                             ", weight ", weight.shape(), ", targets ", targets.shape()));
    // The name of the op that computes the loss if the vocabulary is not divided.
    const char* const undivided = has_bias ? "cross_entropy" : "linear_cross_entropy";
    const profiler::OpScope scope(undivided);
    check_targets(undivided, targets, vocabulary, kIgnored);
}

// The sum of the losses, and its gradients, if requested.
struct Pass {
    Tensor loss, dx, dweight, dbias;
};

// The rows of the weight that belong to the vocabulary, and the index of the first row in the whole
// weight.
struct Rows {
    Tensor weight, bias;
    std::int64_t begin = 0;
};

// The logits [n, classes] of a chunk on this rank, and values [n], of which lse, losses and
// is_ignored are equal on all ranks.
struct Chunk {
    Tensor logits, lse, losses;
    Tensor is_elsewhere;  // whether this rank does not have the target's logit; bool
    Tensor own_targets;   // the target's row on this rank, or 0 if is_elsewhere
    Tensor is_ignored;
};

Chunk forward_chunk(const Tensor& x, const Rows& rows, const Tensor& targets, DType wide,
                    const Group& group) {
    const std::int64_t n = x.size(0), classes = rows.weight.size(0);
    const TensorOptions as_wide = {.dtype = wide, .device = x.device()};
    Chunk chunk;
    chunk.is_ignored = eq(targets, Scalar(kIgnored));
    const Tensor own = to(targets, i64) - Scalar(rows.begin);
    chunk.is_elsewhere = eq(mul(ge(own, Scalar(0)), lt(own, Scalar(classes))), Scalar(0));
    chunk.own_targets = masked_fill(own, chunk.is_elsewhere, 0);
    Tensor own_lse = full({n}, -std::numeric_limits<double>::infinity(), as_wide);
    Tensor target_logits = zeros({n}, as_wide);
    chunk.logits = Tensor::empty({n, classes}, as_wide);
    if (classes > 0) {
        kernels::MatmulEpilogue epilogue;
        const Tensor bias = rows.bias.defined() ? to(rows.bias, wide) : Tensor();
        if (bias.defined()) epilogue.bias = bias.view();
        Tensor ignored_losses = empty_like(own_lse);
        const Tensor none = full({n}, kIgnored, {.dtype = i64, .device = x.device()});
        launch(x.device(), [&](auto& on) {
            kernels::matmul(on, x.view(), rows.weight.t().view(), chunk.logits.view(), epilogue);
            kernels::cross_entropy(on, chunk.logits.view(), none.view(), {}, ignored_losses.view(),
                                   own_lse.view());
        });
        target_logits =
            masked_fill(chunk.logits.gather(1, chunk.own_targets.unsqueeze(1)).squeeze(1),
                        chunk.is_elsewhere, 0);
    }
    // Log-sum-exp and target logit of each rank: [P, 2, n].
    const Tensor all = all_gather_along(stack({own_lse, target_logits}).unsqueeze(0), 0, group,
                                        GradientKind::same);
    const Tensor lses = all.select(1, 0), highest = lses.max(0).first;
    chunk.lse = highest + log(sum(exp(lses - highest), {0}));
    chunk.losses = masked_fill(chunk.lse - sum(all.select(1, 1), {0}), chunk.is_ignored, 0);
    return chunk;
}

// Overwrites the logits of a chunk with their gradient.
void backward_chunk(Chunk& chunk) {
    const Tensor targets = masked_fill(chunk.own_targets, chunk.is_ignored, kIgnored);
    const Tensor one = expand(ones({}, {.dtype = chunk.lse.dtype(), .device = chunk.lse.device()}),
                              {chunk.lse.size(0)});
    // The kernel subtracts 1 from the probability of the target. If another rank has the target,
    // this changes column 0, which is restored.
    const Tensor first = chunk.logits.narrow(1, 0, 1);
    const Tensor probability = exp(first.to(chunk.lse.dtype()) - chunk.lse.unsqueeze(1));
    launch(chunk.logits.device(), [&](auto& on) {
        kernels::cross_entropy_backward(on, chunk.logits.view(), targets.view(), chunk.lse.view(),
                                        one.view(), {}, chunk.logits.view());
    });
    const Tensor is_elsewhere = masked_fill(chunk.is_elsewhere, chunk.is_ignored, 0);
    Tensor(first).copy_(where(is_elsewhere.unsqueeze(1), probability.to(first.dtype()), first));
}

// Returns the number of rows per chunk, the same as in linear_cross_entropy().
std::int64_t chunk_rows(std::int64_t classes, DType dtype) {
    constexpr std::int64_t kBytes = std::int64_t{4} << 20, kMinRows = 256;
    return std::max(kMinRows, kBytes / std::max<std::int64_t>(1, classes * size_of(dtype)));
}

Pass run(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
         std::int64_t vocabulary, const Group& group, bool wants_gradients) {
    const NoGrad no_grad;
    const std::int64_t rows = weight.size(0), begin = group->rank() * rows;
    const std::int64_t classes = std::clamp<std::int64_t>(vocabulary - begin, 0, rows);
    const Rows own{weight.narrow(0, 0, classes),
                   bias.defined() ? bias.narrow(0, 0, classes) : Tensor(), begin};
    const DType wide = x.dtype() == f64 ? f64 : f32;
    const TensorOptions as_wide = {.dtype = wide, .device = x.device()};
    Pass pass;
    pass.loss = zeros({}, as_wide);
    if (wants_gradients) {
        pass.dx = zeros(x.shape(), as_wide);
        pass.dweight = zeros(weight.shape(), as_wide);
        if (bias.defined()) pass.dbias = zeros(bias.shape(), as_wide);
    }
    const std::int64_t step = chunk_rows(rows, wide);
    for (std::int64_t first = 0; first < x.size(0); first += step) {
        const std::int64_t count = std::min(step, x.size(0) - first);
        const Tensor part = x.narrow(0, first, count);
        Chunk chunk = forward_chunk(part, own, targets.narrow(0, first, count), wide, group);
        pass.loss.add_(sum(chunk.losses));
        if (!wants_gradients || classes == 0) continue;
        backward_chunk(chunk);
        const Tensor dlogits = to(chunk.logits, x.dtype());
        Tensor dx = pass.dx.narrow(0, first, count), dweight = pass.dweight.narrow(0, 0, classes);
        launch(x.device(), [&](auto& on) {
            kernels::matmul(on, dlogits.view(), own.weight.view(), dx.view());
            kernels::matmul(on, dlogits.t().view(), part.view(), dweight.view(),
                            {.accumulate = true});
        });
        if (bias.defined()) pass.dbias.narrow(0, 0, classes).add_(sum(chunk.logits, {0}));
    }
    return pass;
}

}  // namespace

Tensor vocabulary_cross_entropy(const Tensor& input, const Tensor& matrix, const Tensor& bias,
                                const Tensor& targets, std::int64_t vocabulary,
                                const Group& group) {
    const profiler::OpScope scope(kOp);
    check_arguments(input, matrix, bias.defined(), targets, vocabulary);
    const Tensor x = autocast(input), weight = autocast(matrix);
    check_same_dtype(kOp, x, weight, "x", "weight");
    const bool wants_gradients = grad_enabled();
    const Pass pass = run(x.detach(), weight.detach(), bias.defined() ? bias.detach() : bias,
                          targets, vocabulary, group, wants_gradients);
    Tensor divisor;
    {
        const NoGrad no_grad;
        divisor = to(sum(ne(targets, Scalar(kIgnored))), pass.loss.dtype());
    }
    const DType dtype = autocast_dtype() ? pass.loss.dtype() : x.dtype();
    Tensor y;
    {
        const NoGrad no_grad;
        y = to(div(pass.loss, divisor), dtype);
    }
    return record(kOp, y, {input, matrix, bias},
                  [dx = saved(pass.dx), dweight = saved(pass.dweight), dbias = saved(pass.dbias),
                   divisor = saved(divisor)](const Grads& dy, Needs needs) -> Grads {
                      if (grad_enabled()) refuse_double_backward(kOp);
                      const Tensor by = divisor;
                      const Tensor factor =
                          div(to(dy[0], by.dtype()), clamp(by, 1.0, std::nullopt));
                      Grads result(3);
                      if (needs[0]) result[0] = mul(dx, factor);
                      if (needs[1]) result[1] = mul(dweight, factor);
                      if (needs[2]) result[2] = mul(dbias, factor);
                      return result;
                  });
}

}  // namespace axle::dist
