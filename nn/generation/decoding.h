// Private to nn/generation: runs a model on growing sequences, with or without a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/generation/generate.h"
#include "nn/generation/key_value_cache.h"

namespace axle::nn {

class Decoding {
  public:
    Decoding(const DecoderFunctions& decoder, Device device, bool use_cache);

    // Returns the logits of the next token of each sequence: [n, vocabulary], f32. After the first
    // call, each sequence must have one more token than in the previous call.
    Tensor logits(const std::vector<TokenIds>& sequences);
    // Keeps the sequences with these indices, in this order. An index can occur several times.
    void select(const std::vector<std::int64_t>& sequences);

  private:
    Tensor run(const Tensor& ids, const Tensor& positions,
               const std::vector<std::int64_t>& last) const;
    Tensor logits_of_windows(const std::vector<TokenIds>& sequences) const;
    Tensor logits_of_prompts(const std::vector<TokenIds>& sequences);
    Tensor logits_of_last_tokens(const std::vector<TokenIds>& sequences) const;

    const DecoderFunctions& decoder_;
    Device device_;
    std::shared_ptr<KeyValueCache> cache_;  // null without a cache
    bool is_filled_ = false;                // whether the cache has the keys of the prompts
};

}  // namespace axle::nn
