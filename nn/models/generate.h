// Text from a language model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/module.h"

namespace axle::inline v0::nn {

struct GenerateOptions {
    double temperature = 1;  // 0 takes the likeliest token
    std::int64_t top_k = 0;  // 0 samples from all
};

// Continues one sequence by `count` tokens, from the default generator, with the model in
// evaluation. logits: ids [1, T] to [1, T, vocabulary]; it sees the last `longest` tokens at most.
// Throws ValueError for an empty sequence and for options that make no sense.
std::vector<std::int64_t> generate(Module& model,
                                   const std::function<Tensor(const Tensor& ids)>& logits,
                                   std::int64_t longest, std::vector<std::int64_t> ids,
                                   std::int64_t count, GenerateOptions options);

}  // namespace axle::inline v0::nn
