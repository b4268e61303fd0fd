// Private to nn/generation: beam search.
#pragma once

#include <cstdint>

#include "nn/generation/decoding.h"

namespace axle::nn {

// Returns the prompt and up to `count` tokens after it, of the best sequence that beam search finds
// with options.num_beams beams. `decoding` must not have computed logits yet.
TokenIds beam_search(Decoding& decoding, const TokenIds& prompt, std::int64_t count,
                     const GenerateOptions& options);

}  // namespace axle::nn
