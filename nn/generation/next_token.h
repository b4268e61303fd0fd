// Private to nn/generation: the choice of the next token.
#pragma once

#include <vector>

#include "nn/generation/generate.h"

namespace axle::nn {

// Returns scores [n, vocabulary], f32, after options.repetition_penalty. Row i belongs to
// sequences[i].
Tensor penalized(const Tensor& scores, const std::vector<TokenIds>& sequences,
                 const GenerateOptions& options);
// Returns one token for each row of logits [n, vocabulary], f32: the most likely token if the
// temperature is 0, otherwise a sampled token.
TokenIds next_tokens(const Tensor& logits, const GenerateOptions& options);

}  // namespace axle::nn
