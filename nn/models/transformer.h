// What the transformers share: layers with normal weights, and masks of padding.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/layers.h"
#include "nn/layers/linear.h"

namespace axle::inline v0::nn {

// Weights from N(0, std), the bias zero.
Linear normal_linear(std::int64_t in, std::int64_t out, double std, LinearOptions options = {});
// Rows from N(0, std), that of padding_idx zero.
Embedding normal_embedding(std::int64_t rows, std::int64_t width, double std,
                           std::optional<std::int64_t> padding_idx = {});

// Where attention_mask [B, T] isn't zero, as a boolean mask [B, 1, 1, T] for attention; undefined
// for an undefined one. ShapeError "who: ..." unless it has the shape of ids.
Tensor padding_mask(const char* who, const Tensor& attention_mask, const Tensor& ids);

}  // namespace axle::inline v0::nn
