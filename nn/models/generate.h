// Text generation from a language model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

struct GenerateOptions {
    double temperature = 1;  // divides the logits; 0 selects the most likely token
    std::int64_t top_k = 0;  // samples from the top_k most likely tokens; 0 samples from all tokens
};

// Appends `count` sampled tokens to a sequence of ids and returns the complete sequence. The model
// is in evaluation mode during the call. `logits` must map ids [1, T] to [1, T, vocabulary]; it is
// called once for each new token, with at most the last `longest` tokens. Random numbers come from
// the default generator (core/random.h). Throws ValueError if the sequence is empty, or if count,
// top_k or temperature is negative.
std::vector<std::int64_t> generate(Module& model,
                                   const std::function<Tensor(const Tensor& ids)>& logits,
                                   std::int64_t longest, std::vector<std::int64_t> ids,
                                   std::int64_t count, GenerateOptions options);

}  // namespace axle::nn
