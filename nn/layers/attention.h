// Multi-head attention with PyTorch's parameter names.
#pragma once

#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle::nn {

struct MultiheadAttentionOptions {
    double dropout = 0;
    bool bias = true;
    bool batch_first =
        false;  // tensors are [batch, time, embed_dim] instead of [time, batch, embed_dim]
};

// Multi-head attention (Vaswani et al., arXiv:1706.03762). in_proj_weight [3 E, E] contains the
// weights of query, key and value in this order.
class MultiheadAttention : public Model<MultiheadAttention> {
  public:
    // Throws ValueError unless embed_dim (E) is a multiple of heads.
    MultiheadAttention(std::int64_t embed_dim, std::int64_t heads,
                       MultiheadAttentionOptions options = {});

    // Computes attention of query to key and value. The last dimension of all three is embed_dim;
    // key and value have the same length. `mask` and `causal` are as in AttentionOptions. Returns a
    // tensor of query's shape. Throws ShapeError if the shapes do not fit.
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

}  // namespace axle::nn
