#include "nn/layers/transformer/encoder.h"

#include <utility>

#include "nn/layers/transformer/branches.h"

namespace axle::nn {

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 TransformerLayerOptions options)
    : self_attn(d_model, nhead, transformer::attention_options(options)),
      linear1(d_model, options.dim_feedforward, {.bias = options.bias}),
      dropout(options.dropout),
      linear2(options.dim_feedforward, d_model, {.bias = options.bias}),
      norm1(d_model, transformer::norm_options(options)),
      norm2(d_model, transformer::norm_options(options)),
      dropout1(options.dropout),
      dropout2(options.dropout),
      activation_(options.activation),
      norm_first_(options.norm_first) {}

Tensor TransformerEncoderLayer::operator()(const Tensor& src,
                                           const TransformerEncoderMasks& masks) {
    return Model::operator()(src, masks);
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const TransformerEncoderMasks& masks) {
    const Tensor y = transformer::branch(src, norm1, dropout1, norm_first_, [&](const Tensor& x) {
        return self_attn(x, x, x, {masks.mask, masks.src_key_padding_mask, masks.is_causal});
    });
    return transformer::branch(y, norm2, dropout2, norm_first_, [&](const Tensor& x) {
        return transformer::feed_forward(x, linear1, dropout, linear2, activation_);
    });
}

void TransformerEncoderLayer::visit(Visitor& v) {
    v("self_attn", self_attn);
    v("linear1", linear1), v("dropout", dropout), v("linear2", linear2);
    v("norm1", norm1), v("norm2", norm2);
    v("dropout1", dropout1), v("dropout2", dropout2);
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer,
                                       std::int64_t num_layers, std::optional<LayerNorm> norm_)
    : norm(std::move(norm_)) {
    transformer::check_layers("TransformerEncoder", num_layers);
    for (std::int64_t i = 0; i < num_layers; ++i) layers.push_back(layer.clone());
}

Tensor TransformerEncoder::operator()(const Tensor& src, const TransformerEncoderMasks& masks) {
    return Model::operator()(src, masks);
}

Tensor TransformerEncoder::forward(const Tensor& src, const TransformerEncoderMasks& masks) {
    Tensor y = src;
    for (TransformerEncoderLayer& layer : layers) y = layer(y, masks);
    return norm ? (*norm)(y) : y;
}

void TransformerEncoder::visit(Visitor& v) {
    v("layers", layers);
    if (norm) v("norm", *norm);
}

}  // namespace axle::nn
