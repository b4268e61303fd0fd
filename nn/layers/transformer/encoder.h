// TransformerEncoderLayer and TransformerEncoder, with PyTorch's parameter names and defaults.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/attention.h"
#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/module.h"

namespace axle::nn {

struct TransformerLayerOptions {
    std::int64_t dim_feedforward = 2048;
    double dropout = 0.1;  // in attention weights, hidden activations and residual branches
    Activation activation = Activation::relu;
    double layer_norm_eps = 1e-5;
    bool batch_first = false;  // if true, the batch is the first dimension of tensors
    bool norm_first = false;   // normalizes the inputs of branches instead of the sums
    bool bias = true;          // whether linear layers and norms have biases
};

// The masks of encoders; MultiheadAttentionMasks describes them.
struct TransformerEncoderMasks {
    Tensor mask = {};                  // [time, time] or [batch * heads, time, time]
    Tensor src_key_padding_mask = {};  // [batch, time]
    // If true, position i attends only to positions j <= i, even without a mask.
    bool is_causal = false;
};

// Self-attention and a feed-forward network, each with a residual connection and a LayerNorm
// (Vaswani et al., arXiv:1706.03762).
class TransformerEncoderLayer : public Model<TransformerEncoderLayer> {
  public:
    // Throws the errors of MultiheadAttention, Linear and Dropout.
    TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                            TransformerLayerOptions options = {});
    // Maps src [time, batch, d_model] to a tensor of the same shape. With batch_first, src is
    // [batch, time, d_model]. One sequence can be [time, d_model]. Throws the errors of
    // MultiheadAttention::operator().
    Tensor operator()(const Tensor& src, const TransformerEncoderMasks& masks = {});
    Tensor forward(const Tensor& src, const TransformerEncoderMasks& masks = {});
    void visit(Visitor& v) override;

    MultiheadAttention self_attn;
    Linear linear1;
    Dropout dropout;
    Linear linear2;
    LayerNorm norm1, norm2;
    Dropout dropout1, dropout2;

  private:
    Activation activation_;
    bool norm_first_;
};

// A stack of encoder layers with an optional final norm.
class TransformerEncoder : public Model<TransformerEncoder> {
  public:
    // Makes num_layers copies of the layer, with equal initial weights, as in PyTorch. Throws
    // ValueError if num_layers is negative.
    TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t num_layers,
                       std::optional<LayerNorm> norm = {});
    // Maps src as the layers do. All layers use the same masks.
    Tensor operator()(const Tensor& src, const TransformerEncoderMasks& masks = {});
    Tensor forward(const Tensor& src, const TransformerEncoderMasks& masks = {});
    void visit(Visitor& v) override;

    ModuleList<TransformerEncoderLayer> layers;
    std::optional<LayerNorm> norm;
};

}  // namespace axle::nn
