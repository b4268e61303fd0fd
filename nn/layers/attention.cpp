#include "nn/layers/attention.h"

#include "nn/init.h"

namespace axle::nn {

MultiheadAttention::MultiheadAttention(std::int64_t embed_dim, std::int64_t heads,
                                       MultiheadAttentionOptions options)
    : out_proj(embed_dim, embed_dim, {.bias = options.bias}),
      embed_dim_(embed_dim),
      heads_(heads),
      options_(options) {
    if (heads < 1 || embed_dim % heads != 0)
        throw ValueError(str("MultiheadAttention: embed_dim ", embed_dim,
                             " is not a multiple of heads ", heads));
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
    if (x.dim() != 3 || x.size(-1) != embed_dim_)
        throw ShapeError(str("MultiheadAttention: operands must be [batch, time, ", embed_dim_,
                             "]: ", x.shape()));
    const auto rows = [&](const Tensor& t) {
        return t.defined() ? t.narrow(0, part * embed_dim_, embed_dim_) : t;
    };
    Tensor y = linear(x, rows(in_proj_weight), rows(in_proj_bias));
    if (!options_.batch_first) y = y.transpose(0, 1);
    return y.reshape({y.size(0), y.size(1), heads_, embed_dim_ / heads_}).transpose(1, 2);
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const Tensor& mask, bool causal) {
    const Tensor y = scaled_dot_product_attention(
        project(query, 0), project(key, 1), project(value, 2),
        {.mask = mask, .dropout_p = is_training() ? options_.dropout : 0, .causal = causal});
    Tensor joined = y.transpose(1, 2).reshape({y.size(0), y.size(2), embed_dim_});
    if (!options_.batch_first) joined = joined.transpose(0, 1);
    return out_proj(joined);
}

void MultiheadAttention::visit(Visitor& v) {
    v("in_proj_weight", in_proj_weight);
    v("in_proj_bias", in_proj_bias);
    v("out_proj", out_proj);
}

}  // namespace axle::nn
