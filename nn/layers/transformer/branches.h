// Private to nn: the parts that encoder and decoder layers of transformers share.
#pragma once

#include <cstdint>

#include "nn/layers/transformer/encoder.h"

namespace axle::nn::transformer {

inline MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
    return {.dropout = options.dropout, .bias = options.bias, .batch_first = options.batch_first};
}
inline LayerNormOptions norm_options(const TransformerLayerOptions& options) {
    return {.eps = options.layer_norm_eps, .bias = options.bias};
}
inline void check_layers(const char* who, std::int64_t num_layers) {
    if (num_layers < 0)
        throw ValueError(str(who, ": num_layers must not be negative: ", num_layers));
}

// Returns x + dropout(f(norm(x))), or norm(x + dropout(f(x))) if norm_first is false.
template <class F>
Tensor branch(const Tensor& x, LayerNorm& norm, Dropout& dropout, bool norm_first, F&& f) {
    if (norm_first) return x + dropout(f(norm(x)));
    return norm(x + dropout(f(x)));
}

// Returns linear2(dropout(activation(linear1(x)))).
inline Tensor feed_forward(const Tensor& x, Linear& linear1, Dropout& dropout, Linear& linear2,
                           Activation activation) {
    if (!dropout.is_training() || dropout.p == 0)
        return nn::feed_forward(linear1, linear2, x, activation);
    return linear2(dropout(linear1(x, activation)));
}

}  // namespace axle::nn::transformer
