// Text generation from a language model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

struct GenerateOptions {
    double temperature = 1;  // 0 takes the most likely token
    std::int64_t top_k = 0;  // 0 samples from all tokens
};

// Continues one sequence by `count` tokens sampled with the default generator, with the model in
// evaluation mode. `logits` maps ids [1, T] to [1, T, vocabulary]; it receives at most the last
// `longest` tokens. Returns the whole sequence. Throws ValueError if the sequence is empty or an
// option is invalid.
std::vector<std::int64_t> generate(Module& model,
                                   const std::function<Tensor(const Tensor& ids)>& logits,
                                   std::int64_t longest, std::vector<std::int64_t> ids,
                                   std::int64_t count, GenerateOptions options);

}  // namespace axle::nn
