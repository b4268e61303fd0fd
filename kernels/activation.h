// The activations that matrix products and linear layers can apply.
#pragma once

#include <cstdint>

namespace axle {

// In this list, gelu is exact (with erf) and gelu_tanh is the approximation of GPT-2.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

}  // namespace axle
