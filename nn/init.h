// Parameter initializers. Each fills a tensor in place from the default generator; autograd does
// not record it.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle::nn::init {

void zeros_(Tensor& t);
void ones_(Tensor& t);
void constant_(Tensor& t, double value);
void uniform_(Tensor& t, double low = 0, double high = 1);
void normal_(Tensor& t, double mean = 0, double std = 1);

// Fills t from a uniform distribution with variance gain^2 / fan_in (He et al., arXiv:1502.01852),
// where gain is the gain of a leaky ReLU with negative slope a, and fan_in is the product of all
// sizes except the first. kaiming_uniform_(weight, sqrt(5)) is PyTorch's default for linear layers.
// All functions in this file throw ShapeError if t has fewer than two dimensions.
void kaiming_uniform_(Tensor& t, double a = 0);
// Fills t from a normal distribution with variance gain^2 / fan_in or gain^2 / fan_out, where
// fan_out is the product of all sizes except the second.
enum class Fan : std::uint8_t { in, out };
void kaiming_normal_(Tensor& t, double a = 0, Fan fan = Fan::in);
// Fills t from a uniform distribution with variance 2 gain^2 / (fan_in + fan_out) (Glorot and
// Bengio, AISTATS 2010).
void xavier_uniform_(Tensor& t, double gain = 1);

// Returns a new f32 parameter with uninitialized values. If this thread has an EmptyWeights object,
// the parameter is on the meta device.
Tensor parameter(const Shape& shape);

// While an object of this class exists, its thread creates parameters on the meta device, without
// memory and without drawing random numbers. load_state_dict later allocates their memory and
// copies values into it.
class EmptyWeights {
  public:
    EmptyWeights();
    ~EmptyWeights();
    EmptyWeights(const EmptyWeights&) = delete;
    EmptyWeights& operator=(const EmptyWeights&) = delete;
};

}  // namespace axle::nn::init
