#include "nn/layers/transformer/decoder.h"

#include <utility>

#include "nn/layers/transformer/branches.h"

namespace axle::nn {

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerLayerOptions options)
    : self_attn(d_model, nhead, transformer::attention_options(options)),
      multihead_attn(d_model, nhead, transformer::attention_options(options)),
      linear1(d_model, options.dim_feedforward, {.bias = options.bias}),
      dropout(options.dropout),
      linear2(options.dim_feedforward, d_model, {.bias = options.bias}),
      norm1(d_model, transformer::norm_options(options)),
      norm2(d_model, transformer::norm_options(options)),
      norm3(d_model, transformer::norm_options(options)),
      dropout1(options.dropout),
      dropout2(options.dropout),
      dropout3(options.dropout),
      activation_(options.activation),
      norm_first_(options.norm_first) {}

Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory,
                                           const TransformerDecoderMasks& masks) {
    return Model::operator()(tgt, memory, masks);
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory,
                                        const TransformerDecoderMasks& masks) {
    Tensor y = transformer::branch(tgt, norm1, dropout1, norm_first_, [&](const Tensor& x) {
        return self_attn(x, x, x,
                         {masks.tgt_mask, masks.tgt_key_padding_mask, masks.tgt_is_causal});
    });
    y = transformer::branch(y, norm2, dropout2, norm_first_, [&](const Tensor& x) {
        return multihead_attn(
            x, memory, memory,
            {masks.memory_mask, masks.memory_key_padding_mask, masks.memory_is_causal});
    });
    return transformer::branch(y, norm3, dropout3, norm_first_, [&](const Tensor& x) {
        return transformer::feed_forward(x, linear1, dropout, linear2, activation_);
    });
}

void TransformerDecoderLayer::visit(Visitor& v) {
    v("self_attn", self_attn), v("multihead_attn", multihead_attn);
    v("linear1", linear1), v("dropout", dropout), v("linear2", linear2);
    v("norm1", norm1), v("norm2", norm2), v("norm3", norm3);
    v("dropout1", dropout1), v("dropout2", dropout2), v("dropout3", dropout3);
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer,
                                       std::int64_t num_layers, std::optional<LayerNorm> norm_)
    : norm(std::move(norm_)) {
    transformer::check_layers("TransformerDecoder", num_layers);
    for (std::int64_t i = 0; i < num_layers; ++i) layers.push_back(layer.clone());
}

Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory,
                                      const TransformerDecoderMasks& masks) {
    return Model::operator()(tgt, memory, masks);
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory,
                                   const TransformerDecoderMasks& masks) {
    Tensor y = tgt;
    for (TransformerDecoderLayer& layer : layers) y = layer(y, memory, masks);
    return norm ? (*norm)(y) : y;
}

void TransformerDecoder::visit(Visitor& v) {
    v("layers", layers);
    if (norm) v("norm", *norm);
}

}  // namespace axle::nn
