// TransformerDecoderLayer and TransformerDecoder, with PyTorch's parameter names and defaults.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/transformer/encoder.h"

namespace axle::nn {

// The masks of decoders; MultiheadAttentionMasks describes them. T is the length of the target
// sequences, and S the length of the memory.
struct TransformerDecoderMasks {
    Tensor tgt_mask = {};                 // [T, T] or [batch * heads, T, T]
    Tensor memory_mask = {};              // [T, S] or [batch * heads, T, S]
    Tensor tgt_key_padding_mask = {};     // [batch, T]
    Tensor memory_key_padding_mask = {};  // [batch, S]
    // If true, position i of the target sequence attends only to positions j <= i of the target
    // sequence or of the memory, even without a mask.
    bool tgt_is_causal = false, memory_is_causal = false;
};

// Self-attention, attention to the memory (the result of an encoder), and a feed-forward network,
// each with a residual connection and a LayerNorm (Vaswani et al., arXiv:1706.03762).
class TransformerDecoderLayer : public Model<TransformerDecoderLayer> {
  public:
    // Throws the errors of MultiheadAttention, Linear and Dropout.
    TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                            TransformerLayerOptions options = {});
    // Maps tgt [T, batch, d_model] and memory [S, batch, d_model] to a tensor of tgt's shape. With
    // batch_first, the batch is the first dimension. A single sequence needs no batch dimension.
    // Throws the errors of MultiheadAttention::operator().
    Tensor operator()(const Tensor& tgt, const Tensor& memory,
                      const TransformerDecoderMasks& masks = {});
    Tensor forward(const Tensor& tgt, const Tensor& memory,
                   const TransformerDecoderMasks& masks = {});
    void visit(Visitor& v) override;

    MultiheadAttention self_attn, multihead_attn;
    Linear linear1;
    Dropout dropout;
    Linear linear2;
    LayerNorm norm1, norm2, norm3;
    Dropout dropout1, dropout2, dropout3;

  private:
    Activation activation_;
    bool norm_first_;
};

// A stack of decoder layers with an optional final norm.
class TransformerDecoder : public Model<TransformerDecoder> {
  public:
    // Makes num_layers copies of the layer, with equal initial weights, as in PyTorch. Throws
    // ValueError if num_layers is negative.
    TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t num_layers,
                       std::optional<LayerNorm> norm = {});
    // Maps tgt and memory as the layers do. All layers use the same memory and masks.
    Tensor operator()(const Tensor& tgt, const Tensor& memory,
                      const TransformerDecoderMasks& masks = {});
    Tensor forward(const Tensor& tgt, const Tensor& memory,
                   const TransformerDecoderMasks& masks = {});
    void visit(Visitor& v) override;

    ModuleList<TransformerDecoderLayer> layers;
    std::optional<LayerNorm> norm;
};

}  // namespace axle::nn
