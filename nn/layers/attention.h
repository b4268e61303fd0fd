// Multi-head attention with PyTorch's parameters.
#pragma once

#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::inline v0::nn {

struct MultiheadAttentionOptions {
    double dropout = 0;
    bool bias = true;
    bool batch_first = false;  // [B, T, E] instead of [T, B, E]
};

// Vaswani et al., arXiv:1706.03762. in_proj_weight [3 E, E] holds query, key and value in this
// order.
class MultiheadAttention : public Model<MultiheadAttention> {
  public:
    // E is a multiple of heads (ValueError).
    MultiheadAttention(std::int64_t embed_dim, std::int64_t heads,
                       MultiheadAttentionOptions options = {});

    // The three have E channels; key and value have one length. `mask` as in AttentionOptions.
    Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value,
                   const Tensor& mask = {}, bool causal = false);
    void visit(Visitor& v) override;

    Tensor in_proj_weight, in_proj_bias;
    Linear out_proj;

  private:
    Tensor project(const Tensor& x, std::int64_t part) const;

    std::int64_t embed_dim_, heads_;
    MultiheadAttentionOptions options_;
};

}  // namespace axle::inline v0::nn
