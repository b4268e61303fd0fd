// Parameter initializers, which fill a tensor in place. Autograd does not record them. Random
// values come from the default generator (core/random.h).
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle::nn::init {

void zeros_(Tensor& t);
void ones_(Tensor& t);
void constant_(Tensor& t, double value);
void uniform_(Tensor& t, double low = 0, double high = 1);  // values in [low, high)
void normal_(Tensor& t, double mean = 0, double std = 1);

// The following three functions do nothing if t is empty, and otherwise throw ShapeError if t has
// fewer than two dimensions. fan_in is the product of all sizes except the first; fan_out is the
// product of all sizes except the second.

// Fills t from a uniform distribution with variance gain^2 / fan_in (He et al., arXiv:1502.01852),
// where gain is the gain of a leaky ReLU with negative slope a. kaiming_uniform_(weight, sqrt(5))
// is PyTorch's default for linear layers.
void kaiming_uniform_(Tensor& t, double a = 0);
enum class Fan : std::uint8_t { in, out };
// Fills t from a normal distribution with variance gain^2 / fan_in (Fan::in) or gain^2 / fan_out
// (Fan::out), where gain is the gain of a leaky ReLU with negative slope a.
void kaiming_normal_(Tensor& t, double a = 0, Fan fan = Fan::in);
// Fills t from a uniform distribution with variance 2 gain^2 / (fan_in + fan_out) (Glorot and
// Bengio, AISTATS 2010). Here, gain is the argument of the function.
void xavier_uniform_(Tensor& t, double gain = 1);

// Returns a new f32 tensor that requires gradients, with uninitialized values. It is on the CPU, or
// on the meta device while this thread has an EmptyWeights object. Otherwise, while this thread has
// a DeferredWeights object, it is on the CPU without memory.
Tensor parameter(const Shape& shape);

// While an object of this class exists, its thread creates parameters on the meta device, without
// memory and without drawing random numbers. Module::load_state_dict() later allocates their memory
// and copies values into it.
class EmptyWeights {
  public:
    EmptyWeights();
    ~EmptyWeights();
    EmptyWeights(const EmptyWeights&) = delete;
    EmptyWeights& operator=(const EmptyWeights&) = delete;
};

// While an object of this class exists, its thread creates parameters without memory. The
// initializers of this file then draw the same random numbers as usual, but compute the values of
// such a parameter only when an op uses its elements, which allocates its memory. The values are
// the same as without this object. Sharded training computes them unit by unit without allocating
// the parameters (dist/sharding/sharded_data_parallel.h). The first uses of a parameter must not be
// concurrent.
class DeferredWeights {
  public:
    DeferredWeights();
    ~DeferredWeights();
    DeferredWeights(const DeferredWeights&) = delete;
    DeferredWeights& operator=(const DeferredWeights&) = delete;
};

// Returns whether t is a parameter without memory because of DeferredWeights.
bool is_deferred(const Tensor& t);
// Computes the values of a parameter for which is_deferred() is true, and writes them to `to`, a
// contiguous f32 tensor with as many elements. The parameter stays without memory.
void write_initial_values(const Tensor& parameter, Tensor to);

}  // namespace axle::nn::init
