// Helpers shared by the transformer models: layers with normally distributed weights, masks and
// positions.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/layers.h"
#include "nn/layers/linear.h"

namespace axle::nn {

// Returns a Linear with normally distributed weights (mean 0, standard deviation std). Its bias, if
// any, is zero. Throws the errors of Linear and init::normal_().
Linear normal_linear(std::int64_t in, std::int64_t out, double std, LinearOptions options = {});
// Returns an Embedding with normally distributed rows (mean 0, standard deviation std). The row
// padding_idx, if given, is zero. Throws the errors of Embedding and init::normal_().
Embedding normal_embedding(std::int64_t rows, std::int64_t width, double std,
                           std::optional<std::int64_t> padding_idx = {});

// Converts attention_mask [B, T] to a boolean mask [B, 1, 1, T] for attention, which is true where
// attention_mask is not 0. Returns an undefined tensor if attention_mask is undefined. Throws
// ShapeError if attention_mask and ids differ in shape; the message begins with `who`.
Tensor padding_mask(const char* who, const Tensor& attention_mask, const Tensor& ids);

// The positions of the tokens of a batch, and the documents that they form. B is the number of
// sequences, T the number of this process's tokens of each sequence, and L the length of whole
// sequences. L = T unless processes share the sequences.
struct TokenPositions {
    // [B, T] (i64). Undefined if the tokens of each whole sequence have the positions 0 to L - 1.
    Tensor positions;
    std::int64_t length = 0;  // the largest position plus 1, if `positions` is defined
    // A boolean mask [B, 1, L, L] for attention, true for two tokens of one document. Undefined if
    // each sequence is one document.
    Tensor documents;
};
// Returns the positions, from position_ids [B or 1, T] (i64 or i32), of the tokens of ids [B, T].
// As in Transformers, a token begins a new document if its position is not the previous token's
// position plus 1. The result is empty if position_ids is undefined or numbers the tokens of each
// whole sequence from 0. If processes share the sequences, position_ids is this process's part, and
// all processes must call this function together. On a GPU, the host waits for position_ids.
//
// Throws ShapeError or DTypeError for other position_ids, and IndexError for positions that are
// negative or not below `limit`; if processes share the sequences, all processes throw this
// IndexError. The message begins with `who`.
TokenPositions token_positions(const char* who, const Tensor& position_ids, const Tensor& ids,
                               std::optional<std::int64_t> limit = {});

}  // namespace axle::nn
