// Multi-head attention with PyTorch's parameter names.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::nn {

struct MultiheadAttentionOptions {
    double dropout = 0;          // probability of dropout of the attention weights in training mode
    bool bias = true;            // whether the four projections have biases, initially 0
    bool add_bias_kv = false;    // appends a learned key and value to each sequence
    bool add_zero_attn = false;  // appends a key and value of zeros
    // The sizes of keys and values; embed_dim by default.
    std::optional<std::int64_t> kdim = {}, vdim = {};
    bool batch_first = false;  // if true, the batch is the first dimension of tensors
};

// The masks of a call of MultiheadAttention, with PyTorch's names. In boolean masks, true means
// that a query must NOT attend to a key, as in PyTorch's module. (In scaled_dot_product_attention,
// true means that it attends.) Floating masks are added to the scores. All masks apply together.
// The keys of add_bias_kv and add_zero_attn are never masked.
struct MultiheadAttentionMasks {
    Tensor attn_mask = {};  // [query time, key time] or [batch * heads, query time, key time]
    Tensor key_padding_mask = {};  // [batch, key time], even without batch_first
    bool is_causal = false;        // query i attends only to keys j <= i, even without attn_mask
};

// Multi-head attention (Vaswani et al., arXiv:1706.03762). With E = embed_dim, in_proj_weight
// [3 E, E] contains the weights of query, key and value in this order. If kdim or vdim differs from
// embed_dim, the three weights are separate parameters instead.
class MultiheadAttention : public Model<MultiheadAttention> {
  public:
    // Throws ValueError unless all sizes are positive and embed_dim is a multiple of heads.
    MultiheadAttention(std::int64_t embed_dim, std::int64_t heads,
                       MultiheadAttentionOptions options = {});

    // Computes the attention of query to key and value. The three tensors are [time, batch, size],
    // or [batch, time, size] if the option batch_first is true, or [time, size] for one sequence.
    // The sizes are embed_dim, kdim and vdim. The three tensors have the same batch size, and key
    // and value have the same number of time steps. For one sequence, masks have no batch:
    // attn_mask is [query time, key time] or [heads, query time, key time], and key_padding_mask is
    // [key time]. Returns a tensor of query's shape. The attention of a query whose keys are all
    // masked is zero (PyTorch returns NaN). Throws ShapeError if the shapes do not fit, DTypeError
    // if a mask is neither boolean nor floating, and ValueError in training mode unless the option
    // dropout is in [0, 1].
    //     Tensor y = attention(x, x, x, {.key_padding_mask = eq(ids, pad_id)});
    Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                      const MultiheadAttentionMasks& masks = {});
    Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value,
                   const MultiheadAttentionMasks& masks = {});
    // Returns the output and the attention weights, as PyTorch's module does with need_weights =
    // true. The weights are [batch, query time, key time], averaged over heads, or [batch, heads,
    // query time, key time] if `average` (average_attn_weights) is false; for one sequence, without
    // batch. The key time includes the keys of add_bias_kv and add_zero_attn. In training mode, the
    // weights are those after dropout. Throws ShapeError and DTypeError as operator() does, and
    // ValueError unless the option dropout is in [0, 1]. Does not use a SequencePolicy. Uses more
    // time and memory than operator().
    std::pair<Tensor, Tensor> forward_with_weights(const Tensor& query, const Tensor& key,
                                                   const Tensor& value,
                                                   const MultiheadAttentionMasks& masks = {},
                                                   bool average = true);
    void visit(Visitor& v) override;

    std::int64_t embed_dim() const { return embed_dim_; }
    const MultiheadAttentionOptions& options() const { return options_; }

    Tensor in_proj_weight, in_proj_bias;  // [3 E, E] and [3 E]; undefined if there is none
    // [E, E], [E, kdim] and [E, vdim]; undefined if in_proj_weight is defined.
    Tensor q_proj_weight, k_proj_weight, v_proj_weight;
    Tensor bias_k, bias_v;  // [1, 1, E] each, undefined without add_bias_kv
    Linear out_proj;

  private:
    struct Projected;
    Projected projected(const Tensor& query, const Tensor& key, const Tensor& value,
                        MultiheadAttentionMasks masks) const;
    Tensor project(const Tensor& x, int part, bool unbatched) const;
    Tensor joined(const Tensor& y, bool unbatched);

    std::int64_t embed_dim_, heads_;
    MultiheadAttentionOptions options_;
};

}  // namespace axle::nn
