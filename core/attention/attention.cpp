#include "kernels/ops/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "core/attention/attention_part.h"
#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/autograd/random_part.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "core/random.h"
#include "kernels/ops/rotary.h"

namespace axle {
namespace {

constexpr const char* kAttention = "scaled_dot_product_attention";

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
    check_device(kAttention, {&q, &k, &v});
    check_floating(kAttention, q, "q");
    check_same_dtype(kAttention, q, k, "q", "k");
    check_same_dtype(kAttention, q, v, "q", "v");
    const auto fail = [&](const char* what) {
        throw ShapeError(
            str(kAttention, ": ", what, ": q ", q.shape(), ", k ", k.shape(), ", v ", v.shape()));
    };
    if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4)
        fail("q, k and v must have 4 dimensions [batch, heads, length, head size]");
    if (k.size(0) != v.size(0) || k.size(1) != v.size(1) || k.size(2) != v.size(2))
        fail("k and v must have the same shape, except for the head size");
    if (q.size(0) != k.size(0)) fail("q and k must have the same batch size");
    if (q.size(3) != k.size(3)) fail("q and k must have the same head size");
    if (q.size(1) != k.size(1) && (k.size(1) == 0 || q.size(1) % k.size(1) != 0))
        fail("the number of heads of q must be a multiple of the number of heads of k");
}

// Throws ShapeError unless the head sizes of k and v are equal.
void check_value_size(const Tensor& k, const Tensor& v) {
    if (k.size(3) != v.size(3))
        throw ShapeError(str(kAttention, ": k and v must have the same shape: k ", k.shape(),
                             ", v ", v.shape()));
}

bool is_learned(const Tensor& mask) {
    return grad_enabled() && mask.defined() && mask.requires_grad();
}

void check_dropout(const AttentionOptions& options) {
    if (!(options.dropout_p >= 0 && options.dropout_p <= 1))
        throw ValueError(str(kAttention, ": dropout_p must be in [0, 1]: ", options.dropout_p));
}

// Returns the mask expanded to the shape of the scores, or an undefined tensor if there is no mask.
// Throws DeviceError, DTypeError or ShapeError for an unsuitable mask.
Tensor score_mask(const Tensor& mask, const Tensor& q, const Tensor& k) {
    if (!mask.defined()) return {};
    check_device(kAttention, {&q, &mask});
    if (mask.dtype() != boolean && !is_floating(mask.dtype()))
        throw DTypeError(str(kAttention, ": the mask must be boolean or floating: ", mask.dtype()));
    const Shape scores = {q.size(0), q.size(1), q.size(2), k.size(2)};
    if (broadcast_shapes(kAttention, mask.shape(), scores) != scores)
        throw ShapeError(str(kAttention, ": the mask cannot be broadcast to the scores: ", "mask ",
                             mask.shape(), ", scores ", scores));
    return expand(mask, scores);
}

// Returns an uninitialized tensor [B, H, T, D] that is stored as [B, T, H, D], so that merging the
// heads needs no copy.
Tensor empty_heads_inner(const Shape& shape, const Tensor& like) {
    return Tensor::empty({shape[0], shape[2], shape[1], shape[3]},
                         {.dtype = like.dtype(), .device = like.device()})
        .transpose(1, 2);
}

// Returns an uninitialized tensor for the gradient of x. The tensor is contiguous if x is
// contiguous, otherwise it is stored as [B, T, H, D].
Tensor empty_gradient(const Tensor& x) {
    return x.is_contiguous() ? empty_like(x) : empty_heads_inner(x.shape(), x);
}

// Returns whether q, k and v are consecutive slices of one tensor [B, T, (heads of q, k and v) D].
bool are_slices(const Tensor& q, const Tensor& k, const Tensor& v) {
    const std::int64_t depth = q.size(3);
    const std::int64_t width = (q.size(1) + k.size(1) + v.size(1)) * depth;
    std::int64_t next = q.impl()->offset;
    for (const Tensor* x : {&q, &k, &v}) {
        const Strides strides = {x->size(2) * width, depth, width, 1};
        if (x->impl()->storage != q.impl()->storage || x->impl()->offset != next ||
            x->size(2) != q.size(2) || x->strides() != strides)
            return false;
        next += x->size(1) * depth;
    }
    return true;
}

// Returns uninitialized tensors for the gradients of slices: slices of one tensor, so that the
// gradient of the split needs no copy.
AttentionGradients empty_slices(const Tensor& q, const Tensor& k, const Tensor& v) {
    const std::int64_t depth = q.size(3), heads = q.size(1) + k.size(1) + v.size(1);
    const Tensor all = Tensor::empty({q.size(0), q.size(2), heads, depth},
                                     {.dtype = q.dtype(), .device = q.device()});
    const auto part = [&](std::int64_t first, const Tensor& x) {
        return narrow(all, 2, first, x.size(1)).transpose(1, 2);
    };
    return {part(0, q), part(q.size(1), k), part(q.size(1) + k.size(1), v)};
}

AttentionGradients empty_gradients(const Tensor& q, const Tensor& k, const Tensor& v, Needs needs) {
    // On a GPU, the plans of cuDNN are checked with the layouts of empty_gradient().
    if (q.device().is_cpu() && needs[0] && needs[1] && needs[2] && are_slices(q, k, v))
        return empty_slices(q, k, v);
    return {.q = needs[0] ? empty_gradient(q) : Tensor(),
            .k = needs[1] ? empty_gradient(k) : Tensor(),
            .v = needs[2] ? empty_gradient(v) : Tensor()};
}

// Computes attention without recording it for backward. Sets params.generator.
AttentionPart forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      kernels::AttentionParams& params) {
    AttentionPart part{
        .out = empty_heads_inner(q.shape(), q),
        .lse = Tensor::empty({q.size(0), q.size(1), q.size(2)},
                             {.dtype = q.dtype() == f64 ? f64 : f32, .device = q.device()})};
    launch(q.device(), [&](auto& on) {
        params.generator = kernels::attention(on, q.view(), k.view(), v.view(), view_or_none(mask),
                                              params, part.out.view(), part.lse.view());
    });
    return part;
}

AttentionGradients backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& mask, const AttentionPart& part,
                            const kernels::AttentionParams& params, Needs needs) {
    AttentionGradients d = empty_gradients(q, k, v, needs);
    const auto view_of = [](Tensor& t) { return t.defined() ? t.view() : View(); };
    launch(q.device(), [&](auto& on) {
        kernels::attention_backward(on, dout.view(), q.view(), k.view(), v.view(),
                                    view_or_none(mask), part.out.view(), part.lse.view(), params,
                                    view_of(d.q), view_of(d.k), view_of(d.v));
    });
    return d;
}

// Returns k or v [B, G, Tk, D] with each head repeated for the queries of its group: [B, H, Tk, D].
Tensor repeated_heads(const Tensor& x, std::int64_t heads) {
    return x.size(1) == heads ? x : repeat_interleave(x, heads / x.size(1), 1);
}

// Returns the attention weights [B, H, Tq, Tk] in f32 or f64, without dropout. They are zero for a
// query whose keys are all masked.
Tensor attention_weights(const Tensor& q, const Tensor& k, const Tensor& mask,
                         const kernels::AttentionParams& params) {
    const DType dtype = q.dtype() == f64 ? f64 : f32;
    const Tensor keys = to(repeated_heads(k, q.size(1)), dtype);
    Tensor scores = matmul(to(q, dtype) * params.scale, keys.transpose(2, 3));
    if (k.size(2) == 0) return scores;
    const double hidden = -std::numeric_limits<double>::infinity();
    if (mask.defined())
        scores = mask.dtype() == boolean ? masked_fill(scores, logical_not(mask), hidden)
                                         : scores + to(mask, dtype);
    if (params.causal) {
        const Tensor all = ones({q.size(2), k.size(2)}, {.dtype = boolean, .device = q.device()});
        scores = masked_fill(scores, triu(all, 1), hidden);
    }
    const Tensor is_empty = eq(amax(scores.detach(), {-1}, true), hidden);
    return masked_fill(softmax(masked_fill(scores, is_empty, 0), -1), is_empty, 0);
}

// Returns the gradient of a floating mask, without dropout. Needs memory for all scores.
Tensor mask_gradient(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& mask, const kernels::AttentionParams& params) {
    const Tensor weights = attention_weights(q, k, mask, params);
    const Tensor values = to(repeated_heads(v, q.size(1)), weights.dtype());
    const Tensor dweights = matmul(to(dout, weights.dtype()), values.transpose(2, 3));
    return weights * (dweights - sum(dweights * weights, {-1}, true));
}

// Computes attention from products and a softmax, for cases that the kernels of attend() do not
// support. Needs memory for all scores. The caller has checked the operands.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                const kernels::AttentionParams& params) {
    const AutocastGuard precision(std::nullopt);
    const Tensor weights = dropout(attention_weights(q, k, mask, params), params.dropout_p);
    return to(matmul(weights, to(repeated_heads(v, q.size(1)), weights.dtype())), q.dtype());
}

// Computes and records attention. The caller has checked the operands.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
              kernels::AttentionParams params) {
    const auto [y, lse] = forward(q, k, v, mask, params);
    return record(
        kAttention, y, {q, k, v, mask},
        [q = saved(q), k = saved(k), v = saved(v), mask = saved(mask), y = saved(y),
         lse = saved(lse), params](const Grads& dy, Needs needs) -> Grads {
            if (grad_enabled()) refuse_double_backward(kAttention);
            const AttentionGradients d = backward(dy[0], q.get(), k.get(), v.get(), mask.get(),
                                                  {y.get(), lse.get()}, params, needs);
            return {d.q, d.k, d.v,
                    needs[3] ? mask_gradient(dy[0], q.get(), k.get(), v.get(), mask.get(), params)
                             : Tensor()};
        });
}

// Returns x rotated by the rotary embedding. direction is 1, or -1 to rotate a gradient back.
Tensor rotate(const Tensor& x, double base, std::int64_t offset, int direction) {
    Tensor y = empty_like(x);
    launch(x.device(),
           [&](auto& on) { kernels::rotary(on, base, offset, direction, x.view(), y.view()); });
    return record("rotary_embedding", y, {x}, [=](const Grads& dy, Needs) -> Grads {
        return {rotate(dy[0], base, offset, -direction)};
    });
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
    const profiler::OpScope scope(kAttention);
    check_device(kAttention, {&query, &key, &value});
    const Tensor q = autocast(query), k = autocast(key), v = autocast(value);
    check_attention(q, k, v);
    const Tensor mask = score_mask(options.mask, q, k);
    check_dropout(options);
    const RandomPart& part = RandomPartGuard::current();
    if (part.parts > 1 && part.dim != 1 && options.dropout_p > 0)
        throw UsageError(
            str(kAttention,
                ": with dropout, a RandomPartGuard must divide the heads (dimension 1): "
                "it divides dimension ",
                part.dim));
    // The kernels need k and v of one shape, and mask_gradient() does not apply dropout.
    if (v.size(3) != k.size(3) || (is_learned(mask) && options.dropout_p > 0)) {
        kernels::AttentionParams params =
            attention_params({.scale = options.scale}, q.size(0), q.size(3), {});
        params.causal = options.causal;
        params.dropout_p = options.dropout_p;
        return composed(q, k, v, mask, params);
    }
    kernels::AttentionParams params =
        attention_params(options, q.size(0), q.size(3),
                         {q.size(1) * part.parts, q.size(2), k.size(2), q.size(1) * part.part});
    // An empty grid means the whole attention. With dropout, cuDNN supports only an empty grid.
    if (part.parts == 1) params.grid = {};
    return attend(q, k, v, mask, params);
}

kernels::AttentionParams attention_params(const AttentionOptions& options, std::int64_t batch,
                                          std::int64_t head_size, const kernels::WeightGrid& grid) {
    check_dropout(options);
    kernels::AttentionParams params;
    const auto depth = static_cast<double>(head_size);
    params.scale = options.scale.value_or(depth > 0 ? 1 / std::sqrt(depth) : 1);
    params.causal = options.causal;
    params.dropout_p = options.dropout_p;
    if (params.dropout_p == 0) return params;
    params.grid = grid;
    params.random = take_random(random_blocks(batch * grid.heads * grid.queries * grid.keys));
    return params;
}

Tensor attention_to_part(const Tensor& q, const Tensor& k, const Tensor& v,
                         const kernels::AttentionParams& params, const Tensor& mask) {
    const profiler::OpScope scope(kAttention);
    check_attention(q, k, v);
    check_value_size(k, v);
    const Tensor own_mask = score_mask(mask, q, k);
    if (is_learned(own_mask) && params.dropout_p > 0)
        throw UsageError(str(kAttention,
                             ": with dropout, the mask of a part of the heads is not "
                             "differentiable: mask ",
                             mask.shape(), "; detach it"));
    return attend(q, k, v, own_mask, params);
}

AttentionPart attention_part(const Tensor& q, const Tensor& k, const Tensor& v,
                             const kernels::AttentionParams& params) {
    check_attention(q, k, v);
    check_value_size(k, v);
    kernels::AttentionParams with = params;
    return forward(q, k, v, {}, with);
}

AttentionGradients attention_part_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                           const Tensor& v, const AttentionPart& all,
                                           const kernels::AttentionParams& params) {
    return backward(dout, q, k, v, {}, all, params, {7});
}

Tensor rotary_embedding(const Tensor& x, double base, std::int64_t offset) {
    const profiler::OpScope scope("rotary_embedding");
    check_device("rotary_embedding", {&x});
    check_floating("rotary_embedding", x);
    if (x.dim() < 2 || x.size(-1) % 2 != 0)
        throw ShapeError(
            str("rotary_embedding: x must be [..., length, even head size]: x ", x.shape()));
    return rotate(x, base, offset, 1);
}

}  // namespace axle
