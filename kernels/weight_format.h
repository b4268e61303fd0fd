// WeightFormat: the formats in which weights of linear layers can be quantized.
#pragma once

#include <cstdint>

namespace axle {

// int8: 8-bit integers with one scale per row of the weight, as in LLM.int8 (Dettmers et al.,
// arXiv:2208.07339). nf4: the 16 values of 4-bit NormalFloat with one scale per block of elements,
// as in QLoRA (Dettmers et al., arXiv:2305.14314).
enum class WeightFormat : std::uint8_t { int8, nf4 };

}  // namespace axle
