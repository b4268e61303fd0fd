// The activation functions that matrix products and linear layers can apply to their results.
#pragma once

#include <cstdint>

namespace axle {

// gelu is the exact formula (with erf); gelu_tanh is the approximation that GPT-2 uses.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

}  // namespace axle
