#include "nn/layers/attention.h"

#include <cmath>
#include <limits>

#include "core/check.h"
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

// Combines both masks into one mask for scaled_dot_product_attention that can be broadcast to
// [batch, heads, Tq, keys], for q [batch, heads, Tq, D]. Returns an undefined tensor if there is no
// mask. Throws DTypeError or ShapeError for unsuitable masks.
Tensor combined(const MultiheadAttentionMasks& masks, const Tensor& q, std::int64_t keys) {
    const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2);
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

// Returns a boolean mask for scaled_dot_product_attention in which each query attends only to keys
// up to its own position.
Tensor causal_mask(const Tensor& q, std::int64_t keys) {
    return ne(tril(ones({q.size(2), keys}, {f32, q.device()})), 0);
}

// Returns the mask extended by `count` unmasked keys.
Tensor extended(const Tensor& mask, std::int64_t count) {
    Shape shape = mask.shape();
    shape[shape.size() - 1] = count;
    const TensorOptions options{mask.dtype(), mask.device()};
    return cat({mask, mask.dtype() == boolean ? ones(shape, options) : zeros(shape, options)}, -1);
}

Tensor xavier_parameter(const Shape& shape) {
    Tensor weight = init::parameter(shape);
    init::xavier_uniform_(weight);
    return weight;
}

}  // namespace

// The arguments of the attention: q, k and v are [batch, heads, time, head size].
struct MultiheadAttention::Projected {
    Tensor q, k, v;
    Tensor mask;  // as in scaled_dot_product_attention; undefined if there is no mask
    bool causal = false;
    bool unbatched = false;  // the inputs had no batch
};

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
    const std::int64_t kdim = options.kdim.value_or(embed_dim);
    const std::int64_t vdim = options.vdim.value_or(embed_dim);
    if (kdim < 1 || vdim < 1)
        throw ValueError(str("MultiheadAttention: kdim and vdim must be positive: kdim ", kdim,
                             ", vdim ", vdim));
    if (kdim == embed_dim && vdim == embed_dim) {
        in_proj_weight = xavier_parameter({3 * embed_dim, embed_dim});
    } else {
        q_proj_weight = xavier_parameter({embed_dim, embed_dim});
        k_proj_weight = xavier_parameter({embed_dim, kdim});
        v_proj_weight = xavier_parameter({embed_dim, vdim});
    }
    if (options.bias) {
        in_proj_bias = init::parameter({3 * embed_dim});
        init::zeros_(in_proj_bias);
        init::zeros_(out_proj.bias);
    }
    if (!options.add_bias_kv) return;
    bias_k = init::parameter({1, 1, embed_dim}), bias_v = init::parameter({1, 1, embed_dim});
    init::xavier_normal_(bias_k), init::xavier_normal_(bias_v);
}

// Projects x and returns the query (part = 0), key (1) or value (2) as [batch, heads, time, head
// size], with the learned key or value. Throws ShapeError if the dimensions or the width of x are
// wrong.
Tensor MultiheadAttention::project(const Tensor& x, int part, bool unbatched) const {
    const std::int64_t sizes[] = {embed_dim_, options_.kdim.value_or(embed_dim_),
                                  options_.vdim.value_or(embed_dim_)};
    if (x.dim() != (unbatched ? 2 : 3) || x.size(-1) != sizes[part]) {
        const char* const name = part == 0 ? "query" : part == 1 ? "key" : "value";
        const char* const first = unbatched              ? "[time, "
                                  : options_.batch_first ? "[batch, time, "
                                                         : "[time, batch, ";
        throw ShapeError(str("MultiheadAttention: ", name, " must be ", first, sizes[part],
                             "]: it is ", x.shape()));
    }
    const auto rows = [&](const Tensor& t) {
        return t.defined() ? t.narrow(0, part * embed_dim_, embed_dim_) : t;
    };
    const Tensor separate[] = {q_proj_weight, k_proj_weight, v_proj_weight};
    const Tensor weight = in_proj_weight.defined() ? rows(in_proj_weight) : separate[part];
    Tensor y = linear(unbatched ? x.unsqueeze(0) : x, weight, rows(in_proj_bias));
    if (!options_.batch_first && !unbatched) y = y.transpose(0, 1);
    const Tensor& learned = part == 1 ? bias_k : bias_v;
    if (part > 0 && learned.defined())
        y = cat({y, learned.to(y.dtype()).expand({y.size(0), 1, embed_dim_})}, 1);
    return y.reshape({y.size(0), y.size(1), heads_, embed_dim_ / heads_}).transpose(1, 2);
}

MultiheadAttention::Projected MultiheadAttention::projected(const Tensor& query, const Tensor& key,
                                                            const Tensor& value,
                                                            MultiheadAttentionMasks masks) const {
    check_device("MultiheadAttention", {&query, &key, &value});
    Projected result;
    result.unbatched = query.dim() == 2;
    if (result.unbatched && masks.key_padding_mask.defined() && masks.key_padding_mask.dim() == 1)
        masks.key_padding_mask = masks.key_padding_mask.unsqueeze(0);
    result.q = project(query, 0, result.unbatched);
    result.k = project(key, 1, result.unbatched);
    result.v = project(value, 2, result.unbatched);
    if (result.k.size(0) != result.q.size(0) || result.v.size(0) != result.q.size(0) ||
        result.k.size(2) != result.v.size(2))
        throw ShapeError(
            str("MultiheadAttention: query, key and value must have the same batch size, and key "
                "and value the same number of time steps: query ",
                query.shape(), ", key ", key.shape(), ", value ", value.shape()));
    result.causal = masks.is_causal;
    std::int64_t added_keys = options_.add_bias_kv ? 1 : 0;
    const std::int64_t keys = result.k.size(2) - added_keys;
    result.mask = combined(masks, result.q, keys);
    if (options_.add_zero_attn) {
        ++added_keys;
        const Tensor& k = result.k;
        const Tensor none = zeros({k.size(0), heads_, 1, k.size(3)}, {k.dtype(), k.device()});
        result.k = cat({k, none}, 2);
        result.v = cat({result.v, none}, 2);
    }
    if (added_keys == 0) return result;
    if (result.causal) {  // the causal attention of the op would mask the added keys
        const Tensor causal = causal_mask(result.q, keys);
        if (!result.mask.defined())
            result.mask = causal;
        else if (result.mask.dtype() == boolean)
            result.mask = logical_and(result.mask, causal);
        else
            result.mask = result.mask + added(logical_not(causal), result.mask.dtype());
        result.causal = false;
    }
    if (result.mask.defined()) result.mask = extended(result.mask, added_keys);
    return result;
}

// Joins the heads of y [batch, heads, time, head size] and projects the result.
Tensor MultiheadAttention::joined(const Tensor& y, bool unbatched) {
    const Tensor x = y.transpose(1, 2).reshape({y.size(0), y.size(2), embed_dim_});
    if (unbatched) return out_proj(x.squeeze(0));
    return out_proj(options_.batch_first ? x : x.transpose(0, 1));
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const MultiheadAttentionMasks& masks) {
    return Model::operator()(query, key, value, masks);
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const MultiheadAttentionMasks& masks) {
    const Projected p = projected(query, key, value, masks);
    return joined(nn::attention(p.q, p.k, p.v,
                                {.mask = p.mask,
                                 .dropout_p = is_training() ? options_.dropout : 0,
                                 .causal = p.causal}),
                  p.unbatched);
}

std::pair<Tensor, Tensor> MultiheadAttention::forward_with_weights(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionMasks& masks, bool average) {
    return enter([&] {
        const Projected p = projected(query, key, value, masks);
        Tensor scores =
            matmul(p.q, p.k.transpose(-2, -1)) / std::sqrt(static_cast<double>(p.q.size(-1)));
        if (p.mask.defined() && p.mask.dtype() == boolean)
            scores = masked_fill(scores, logical_not(p.mask), kMinusInfinity);
        else if (p.mask.defined())
            scores = scores + p.mask;
        if (p.causal)
            scores =
                masked_fill(scores, logical_not(causal_mask(p.q, p.k.size(2))), kMinusInfinity);
        // If all scores of a query are -infinity, softmax would return NaN. The weights of the
        // query become zero instead.
        const Tensor blocked = eq(max(scores.detach(), {-1}, true), kMinusInfinity);
        Tensor weights = masked_fill(softmax(masked_fill(scores, blocked, 0)), blocked, 0);
        weights = dropout(weights, options_.dropout, is_training());
        const Tensor y = joined(matmul(weights, p.v), p.unbatched);
        if (average) weights = mean(weights, {1});
        return std::pair(y, p.unbatched ? weights.squeeze(0) : weights);
    });
}

void MultiheadAttention::visit(Visitor& v) {
    v("in_proj_weight", in_proj_weight);
    v("q_proj_weight", q_proj_weight), v("k_proj_weight", k_proj_weight);
    v("v_proj_weight", v_proj_weight);
    v("in_proj_bias", in_proj_bias);
    v("bias_k", bias_k), v("bias_v", bias_v);
    v("out_proj", out_proj);
}

}  // namespace axle::nn
