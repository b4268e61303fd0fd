// The activations that matrix products and linear layers can apply.
#pragma once

#include <cstdint>

namespace axle {

// gelu is exact (with erf); gelu_tanh is the approximation of GPT-2.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

}  // namespace axle
