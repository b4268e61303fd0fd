// Helpers shared by the transformer models: layers with normally distributed weights, and padding
// masks.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/layers.h"
#include "nn/layers/linear.h"

namespace axle::nn {

// Returns a Linear with normally distributed weights (mean 0, standard deviation std). If it has a
// bias, the bias is zero.
Linear normal_linear(std::int64_t in, std::int64_t out, double std, LinearOptions options = {});
// Returns an Embedding with normally distributed rows (mean 0, standard deviation std). If
// padding_idx is given, that row is zero.
Embedding normal_embedding(std::int64_t rows, std::int64_t width, double std,
                           std::optional<std::int64_t> padding_idx = {});

// Converts attention_mask [B, T] to a boolean mask [B, 1, 1, T] for attention, which is true where
// attention_mask is not 0. Returns an undefined tensor if attention_mask is undefined. Throws
// ShapeError if attention_mask and ids differ in shape; the message begins with `who`.
Tensor padding_mask(const char* who, const Tensor& attention_mask, const Tensor& ids);

}  // namespace axle::nn
