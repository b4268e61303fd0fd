// Transformer: an encoder and a decoder, with PyTorch's parameter names and defaults.
//
//     nn::Transformer model({.d_model = 64, .nhead = 4, .batch_first = true});
//     Tensor y = model(src, tgt, {.tgt_is_causal = true});  // y has the shape of tgt
#pragma once

#include <cstdint>

#include "nn/layers/transformer/decoder.h"
#include "nn/layers/transformer/encoder.h"
#include "nn/module.h"

namespace axle::nn {

struct TransformerOptions {
    std::int64_t d_model = 512;
    std::int64_t nhead = 8;
    std::int64_t num_encoder_layers = 6;
    std::int64_t num_decoder_layers = 6;
    std::int64_t dim_feedforward = 2048;
    double dropout = 0.1;
    Activation activation = Activation::relu;
    double layer_norm_eps = 1e-5;
    bool batch_first = false;  // if true, the batch is the first dimension of tensors
    bool norm_first = false;   // normalizes the inputs of branches instead of the sums
    bool bias = true;          // whether linear layers and norms have biases
};

// The masks of a Transformer; MultiheadAttentionMasks describes them. S is the length of the source
// sequences, and T the length of the target sequences.
struct TransformerMasks {
    Tensor src_mask = {};                 // [S, S] or [batch * heads, S, S]
    Tensor tgt_mask = {};                 // [T, T] or [batch * heads, T, T]
    Tensor memory_mask = {};              // [T, S] or [batch * heads, T, S]
    Tensor src_key_padding_mask = {};     // [batch, S]
    Tensor tgt_key_padding_mask = {};     // [batch, T]
    Tensor memory_key_padding_mask = {};  // [batch, S]
    // If true, position i attends only to positions j <= i, even without a mask.
    bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;
};

// An encoder and a decoder, each with a norm at the end (Vaswani et al., arXiv:1706.03762). All
// matrices are initialized with xavier_uniform_.
class Transformer : public Model<Transformer> {
  public:
    // Throws the errors of TransformerEncoderLayer and TransformerDecoderLayer, and ValueError if a
    // number of layers is negative.
    explicit Transformer(TransformerOptions options = {});
    // Maps src [S, batch, d_model] and tgt [T, batch, d_model] to a tensor of tgt's shape. With
    // batch_first, the batch is the first dimension. A single sequence needs no batch dimension.
    // Throws ShapeError if the shapes do not fit, and the errors of MultiheadAttention::operator()
    // for masks.
    Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks = {});
    Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks = {});
    void visit(Visitor& v) override { v("encoder", encoder), v("decoder", decoder); }

    // Returns a mask [size, size] that is -infinity above the diagonal and 0 elsewhere.
    static Tensor generate_square_subsequent_mask(std::int64_t size, TensorOptions options = {});

    TransformerEncoder encoder;
    TransformerDecoder decoder;

    const TransformerOptions& options() const { return options_; }

  private:
    TransformerOptions options_;
};

}  // namespace axle::nn
