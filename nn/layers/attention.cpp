#include "nn/layers/attention.h"

#include <cmath>
#include <limits>

#include "nn/init.h"
#include "nn/layers/sequence_policy.h"

namespace axle::nn {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Converts a mask to a floating mask that is added to the scores. In a boolean mask, true means
// that a query must not attend to a key.
Tensor added(const Tensor& mask, DType dtype) {
    if (mask.dtype() != boolean) return to(mask, dtype);
    return masked_fill(zeros(mask.shape(), {dtype, mask.device()}), mask, kMinusInfinity);
}

void check_mask(const char* name, const Tensor& mask) {
    if (mask.dtype() != boolean && !is_floating(mask.dtype()))
        throw DTypeError(str("MultiheadAttention: ", name,
                             " must be boolean (true: do not attend) or floating (added): it is ",
                             mask.dtype()));
}

// Returns both masks as one mask of scaled_dot_product_attention, which can be broadcast to the
// scores of q [batch, heads, Tq, D] and k [batch, heads, Tk, D]; undefined if there is no mask.
Tensor combined(const MultiheadAttentionMasks& masks, const Tensor& q, const Tensor& k) {
    const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), keys = k.size(2);
    Tensor attention = masks.attn_mask, padding = masks.key_padding_mask;
    if (attention.defined()) {
        check_mask("attn_mask", attention);
        const Shape own{batch * heads, queries, keys};
        if (attention.shape() != Shape{queries, keys} && attention.shape() != own)
            throw ShapeError(str("MultiheadAttention: attn_mask must be ", Shape{queries, keys},
                                 " or ", own, ": attn_mask is ", attention.shape()));
        if (attention.dim() == 3) attention = attention.reshape({batch, heads, queries, keys});
    }
    if (padding.defined()) {
        check_mask("key_padding_mask", padding);
        if (padding.shape() != Shape{batch, keys})
            throw ShapeError(str("MultiheadAttention: key_padding_mask must be ",
                                 Shape{batch, keys}, ", one value for each key: it is ",
                                 padding.shape()));
        padding = padding.unsqueeze(1).unsqueeze(1);
    }
    const auto attends = [](const Tensor& mask) { return eq(mask, 0); };
    if (!attention.defined() || !padding.defined()) {
        const Tensor mask = attention.defined() ? attention : padding;
        return mask.defined() && mask.dtype() == boolean ? attends(mask) : mask;
    }
    if (attention.dtype() != boolean || padding.dtype() != boolean)
        return added(attention, q.dtype()) + added(padding, q.dtype());
    return attends(where(attention, attention, padding));  // where(): true if either mask is true
}

}  // namespace

MultiheadAttention::MultiheadAttention(std::int64_t embed_dim, std::int64_t heads,
                                       MultiheadAttentionOptions options)
    : out_proj(embed_dim, embed_dim, {.bias = options.bias}),
      embed_dim_(embed_dim),
      heads_(heads),
      options_(options) {
    if (heads < 1 || embed_dim % heads != 0)
        throw ValueError(
            str("MultiheadAttention: heads must be positive and divide embed_dim: heads ", heads,
                ", embed_dim ", embed_dim));
    in_proj_weight = init::parameter({3 * embed_dim, embed_dim});
    init::xavier_uniform_(in_proj_weight);
    if (!options.bias) return;
    in_proj_bias = init::parameter({3 * embed_dim});
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj.bias);
}

// Projects x and returns the query (part = 0), key (1) or value (2) as [batch, heads, time, head
// size].
Tensor MultiheadAttention::project(const Tensor& x, std::int64_t part) const {
    if (x.dim() != 3 || x.size(-1) != embed_dim_) {
        const char* const name = part == 0 ? "query" : part == 1 ? "key" : "value";
        const char* const sizes = options_.batch_first ? "[batch, time, " : "[time, batch, ";
        throw ShapeError(str("MultiheadAttention: ", name, " must be ", sizes, embed_dim_,
                             "]: it is ", x.shape()));
    }
    const auto rows = [&](const Tensor& t) {
        return t.defined() ? t.narrow(0, part * embed_dim_, embed_dim_) : t;
    };
    Tensor y = linear(x, rows(in_proj_weight), rows(in_proj_bias));
    if (!options_.batch_first) y = y.transpose(0, 1);
    return y.reshape({y.size(0), y.size(1), heads_, embed_dim_ / heads_}).transpose(1, 2);
}

// Joins the heads of y [batch, heads, time, head size] and projects the result.
Tensor MultiheadAttention::joined(const Tensor& y) {
    const Tensor x = y.transpose(1, 2).reshape({y.size(0), y.size(2), embed_dim_});
    return out_proj(options_.batch_first ? x : x.transpose(0, 1));
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const MultiheadAttentionMasks& masks) {
    return Model::operator()(query, key, value, masks);
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const MultiheadAttentionMasks& masks) {
    const Tensor q = project(query, 0), k = project(key, 1);
    return joined(nn::attention(q, k, project(value, 2),
                                {.mask = combined(masks, q, k),
                                 .dropout_p = is_training() ? options_.dropout : 0,
                                 .causal = masks.is_causal}));
}

std::pair<Tensor, Tensor> MultiheadAttention::forward_with_weights(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionMasks& masks, bool average) {
    return enter([&] {
        const Tensor q = project(query, 0), k = project(key, 1);
        Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
        const Tensor mask = combined(masks, q, k);
        if (mask.defined() && mask.dtype() == boolean)
            scores = masked_fill(scores, eq(mask, 0), kMinusInfinity);
        else if (mask.defined())
            scores = scores + mask;
        if (masks.is_causal) {
            const Shape square{q.size(2), k.size(2)};
            scores =
                masked_fill(scores, eq(tril(ones(square, {f32, q.device()})), 0), kMinusInfinity);
        }
        // If all scores of a query are -infinity, softmax would return NaN. The weights of the
        // query become zero instead.
        const Tensor blocked = eq(max(scores.detach(), {-1}, true), kMinusInfinity);
        Tensor weights = masked_fill(softmax(masked_fill(scores, blocked, 0)), blocked, 0);
        weights = dropout(weights, options_.dropout, is_training());
        const Tensor y = joined(matmul(weights, project(value, 2)));
        return std::pair(y, average ? mean(weights, {1}) : weights);
    });
}

void MultiheadAttention::visit(Visitor& v) {
    v("in_proj_weight", in_proj_weight);
    v("in_proj_bias", in_proj_bias);
    v("out_proj", out_proj);
}

}  // namespace axle::nn
