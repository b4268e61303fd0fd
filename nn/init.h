// Initialisers: each fills a tensor in place, without recording, from the default generator.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle::inline v0::nn::init {

void zeros_(Tensor& t);
void ones_(Tensor& t);
void constant_(Tensor& t, double value);
void uniform_(Tensor& t, double low = 0, double high = 1);
void normal_(Tensor& t, double mean = 0, double std = 1);

// Uniform with variance gain^2 / fan_in (He et al., arXiv:1502.01852), gain from a leaky ReLU of
// negative slope a. fan_in is the product of all sizes but the first. kaiming_uniform_(weight,
// sqrt(5)) is PyTorch's default for linear layers.
void kaiming_uniform_(Tensor& t, double a = 0);
// Normal with that variance, or with fan_out (the product of all sizes but the second) for fan_in.
enum class Fan : std::uint8_t { in, out };
void kaiming_normal_(Tensor& t, double a = 0, Fan fan = Fan::in);
// Uniform with variance 2 gain^2 / (fan_in + fan_out) (Glorot and Bengio, AISTATS 2010).
void xavier_uniform_(Tensor& t, double gain = 1);

// An empty parameter, to be filled by an initialiser.
Tensor parameter(const Shape& shape);

// While one lives, the parameters that this thread makes are on the meta device: modules of any
// size cost no memory and draw no random numbers. load_state_dict gives them memory and values.
class EmptyWeights {
  public:
    EmptyWeights();
    ~EmptyWeights();
    EmptyWeights(const EmptyWeights&) = delete;
    EmptyWeights& operator=(const EmptyWeights&) = delete;
};

}  // namespace axle::inline v0::nn::init
