// Multi-head attention with PyTorch's parameter names.
#pragma once

#include <utility>

#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::nn {

struct MultiheadAttentionOptions {
    double dropout = 0;  // probability of dropout of the attention weights in training mode
    bool bias = true;
    bool batch_first =
        false;  // tensors are [batch, time, embed_dim] instead of [time, batch, embed_dim]
};

// The masks of a call of MultiheadAttention, with PyTorch's names. In boolean masks, true means
// that a query must NOT attend to a key, as in PyTorch's module. (In scaled_dot_product_attention,
// true means that it attends.) Floating masks are added to the scores. All masks apply together.
struct MultiheadAttentionMasks {
    Tensor attn_mask = {};  // [query time, key time] or [batch * heads, query time, key time]
    Tensor key_padding_mask = {};  // [batch, key time], also without batch_first
    bool is_causal = false;        // query i attends only to keys j <= i, also without attn_mask
};

// Multi-head attention (Vaswani et al., arXiv:1706.03762). With E = embed_dim, in_proj_weight
// [3 E, E] contains the weights of query, key and value in this order.
class MultiheadAttention : public Model<MultiheadAttention> {
  public:
    // Throws ValueError unless embed_dim and heads are positive and embed_dim is a multiple of
    // heads.
    MultiheadAttention(std::int64_t embed_dim, std::int64_t heads,
                       MultiheadAttentionOptions options = {});

    // Computes the attention of query to key and value. The three tensors are [time, batch,
    // embed_dim], or [batch, time, embed_dim] if the option batch_first is true; key and value have
    // the same number of time steps.
    // Returns a tensor of query's shape. The attention of a query whose keys are all masked is zero
    // (PyTorch returns NaN). Throws ShapeError if the shapes do not fit, and DTypeError if a mask
    // is neither boolean nor floating.
    //     Tensor y = attention(x, x, x, {.key_padding_mask = eq(ids, pad_id)});
    Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                      const MultiheadAttentionMasks& masks = {});
    Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value,
                   const MultiheadAttentionMasks& masks = {});
    // Returns the output and the attention weights, as PyTorch's module does with need_weights =
    // true. The weights are [batch, query time, key time], averaged over heads, or [batch, heads,
    // query time, key time] if `average` is false. Uses more time and memory than operator().
    std::pair<Tensor, Tensor> forward_with_weights(const Tensor& query, const Tensor& key,
                                                   const Tensor& value,
                                                   const MultiheadAttentionMasks& masks = {},
                                                   bool average = true);
    void visit(Visitor& v) override;

    Tensor in_proj_weight, in_proj_bias;
    Linear out_proj;

  private:
    Tensor project(const Tensor& x, std::int64_t part) const;
    Tensor joined(const Tensor& y);

    std::int64_t embed_dim_, heads_;
    MultiheadAttentionOptions options_;
};

}  // namespace axle::nn
