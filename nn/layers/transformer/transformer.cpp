#include "nn/layers/transformer/transformer.h"

#include <limits>

#include "core/check.h"
#include "nn/init.h"

namespace axle::nn {
namespace {

TransformerLayerOptions layer_options(const TransformerOptions& options) {
    return {.dim_feedforward = options.dim_feedforward,
            .dropout = options.dropout,
            .activation = options.activation,
            .layer_norm_eps = options.layer_norm_eps,
            .batch_first = options.batch_first,
            .norm_first = options.norm_first,
            .bias = options.bias};
}

LayerNorm last_norm(const TransformerOptions& options) {
    return LayerNorm(options.d_model, {.eps = options.layer_norm_eps, .bias = options.bias});
}

}  // namespace

Transformer::Transformer(TransformerOptions options)
    : encoder(TransformerEncoderLayer(options.d_model, options.nhead, layer_options(options)),
              options.num_encoder_layers, last_norm(options)),
      decoder(TransformerDecoderLayer(options.d_model, options.nhead, layer_options(options)),
              options.num_decoder_layers, last_norm(options)),
      options_(options) {
    for (Tensor& parameter : parameters())
        if (parameter.dim() > 1) init::xavier_uniform_(parameter);
}

Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt,
                               const TransformerMasks& masks) {
    check_device("Transformer", {&src, &tgt});
    return Model::operator()(src, tgt, masks);
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks) {
    const std::int64_t batch_dim = options_.batch_first ? 0 : 1;
    const bool fits = src.dim() == tgt.dim() && (src.dim() == 2 || src.dim() == 3) &&
                      src.size(-1) == options_.d_model && tgt.size(-1) == options_.d_model &&
                      (src.dim() == 2 || src.size(batch_dim) == tgt.size(batch_dim));
    if (!fits)
        throw ShapeError(str("Transformer: src and tgt must be ",
                             options_.batch_first ? "[batch, time, " : "[time, batch, ",
                             options_.d_model, "] with the same batch size, or [time, ",
                             options_.d_model, "]: src is ", src.shape(), ", tgt is ",
                             tgt.shape()));
    const Tensor memory =
        encoder(src, {masks.src_mask, masks.src_key_padding_mask, masks.src_is_causal});
    return decoder(tgt, memory,
                   {masks.tgt_mask, masks.memory_mask, masks.tgt_key_padding_mask,
                    masks.memory_key_padding_mask, masks.tgt_is_causal, masks.memory_is_causal});
}

Tensor Transformer::generate_square_subsequent_mask(std::int64_t size, TensorOptions options) {
    return triu(full({size, size}, -std::numeric_limits<double>::infinity(), options), 1);
}

}  // namespace axle::nn
