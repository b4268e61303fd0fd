// Parameter initializers, which fill a tensor in place, and the creation of parameters, also
// without memory. Autograd does not record initializers. Random values come from the default
// generator (core/random.h). All initializers throw UsageError for an undefined tensor.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace axle::nn::init {

// Fill t with 0, 1 or a value, or from a uniform distribution in [low, high) or a normal
// distribution. uniform_() throws ValueError unless the range is finite and low <= high, and
// normal_() unless std >= 0; both throw DTypeError unless t is floating, and UsageError if elements
// of t share memory (expand). The other functions throw DTypeError for a storage dtype.
void zeros_(Tensor& t);
void ones_(Tensor& t);
void constant_(Tensor& t, double value);
void uniform_(Tensor& t, double low = 0, double high = 1);
void normal_(Tensor& t, double mean = 0, double std = 1);

// Fills t from a normal distribution that is truncated to [low, high]. Throws ValueError unless low
// <= high and std >= 0. With DeferredWeights, allocates the memory of t, unless t is empty or std
// is 0.
void trunc_normal_(Tensor& t, double mean = 0, double std = 1, double low = -2, double high = 2);

enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
// Returns the recommended gain for weights before a nonlinearity, in the order of the enum: 1, 1,
// 5/3, sqrt(2), sqrt(2 / (1 + a^2)) and 3/4. `a` is the negative slope of leaky_relu.
double calculate_gain(Nonlinearity nonlinearity, double a = 0.01);

// The following four functions do nothing if t is empty, and otherwise throw ShapeError if t has
// fewer than two dimensions, and the errors of uniform_() or normal_(): for example, ValueError for
// a negative gain. fan_in is the product of all sizes except the first; fan_out is the product of
// all sizes except the second.

enum class Fan : std::uint8_t { in, out };
// Fill t from a uniform or normal distribution with variance gain^2 / fan_in (Fan::in) or gain^2 /
// fan_out (Fan::out) (He et al., arXiv:1502.01852). The gain is calculate_gain(nonlinearity, a).
// kaiming_uniform_(weight, sqrt(5)) is PyTorch's default for linear layers.
void kaiming_uniform_(Tensor& t, double a = 0, Fan fan = Fan::in,
                      Nonlinearity nonlinearity = Nonlinearity::leaky_relu);
void kaiming_normal_(Tensor& t, double a = 0, Fan fan = Fan::in,
                     Nonlinearity nonlinearity = Nonlinearity::leaky_relu);
// Fill t from a uniform or normal distribution with variance 2 gain^2 / (fan_in + fan_out) (Glorot
// and Bengio, AISTATS 2010).
void xavier_uniform_(Tensor& t, double gain = 1);
void xavier_normal_(Tensor& t, double gain = 1);

// The following four functions check their arguments, but write nothing if t is on the meta device.
// With DeferredWeights, they allocate the memory of t. orthogonal_() and sparse_() compute the
// values on the CPU and copy them to t.

// Fills the matrix t with the identity. Throws ShapeError unless t has two dimensions.
void eye_(Tensor& t);
// Fills the weight of a convolution so that each of its `groups` groups preserves as many input
// channels as possible. The weight is [out, in, ...] with one to three kernel dimensions. Throws
// ShapeError for other numbers of dimensions, and ValueError unless groups is positive and divides
// the first size.
void dirac_(Tensor& t, std::int64_t groups = 1);
// Fills t, flattened to [first size, product of the other sizes], with a random matrix (Saxe et
// al., arXiv:1312.6120). Its rows (or columns, if there are more rows than columns) are orthogonal
// and have the norm `gain`. Throws ShapeError if t has fewer than two dimensions.
void orthogonal_(Tensor& t, double gain = 1);
// Fills the matrix t from a normal distribution with mean 0, and sets ceil(sparsity * rows) random
// elements of each column to zero. Throws ShapeError unless t has two dimensions, and ValueError
// unless sparsity is in [0, 1] and std >= 0.
void sparse_(Tensor& t, double sparsity, double std = 0.01);

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
// initializers of this file draw the same random numbers as usual. The values of a parameter are
// computed, and its memory is allocated, when an op first uses its elements. The values are the
// same as without this object. Sharded training computes them unit by unit without allocating the
// parameters (dist/sharding/sharded_data_parallel.h). The first uses of a parameter must not be
// concurrent. The functions from_pretrained() of models check the files, but read a weight when an
// op first uses its elements; the files must not change before. Then quantize_linears()
// (nn/precision/quantized_linear.h) needs memory for one whole weight only.
class DeferredWeights {
  public:
    DeferredWeights();
    ~DeferredWeights();
    DeferredWeights(const DeferredWeights&) = delete;
    DeferredWeights& operator=(const DeferredWeights&) = delete;
};

// Returns whether this thread has an object of DeferredWeights.
bool defers_weights();
// Returns whether t is a parameter without memory whose initial values DeferredWeights computes.
bool is_deferred(const Tensor& t);
// Computes the values of a parameter for which is_deferred() is true, and writes them to `to`, a
// contiguous f32 tensor with as many elements. The parameter stays without memory.
void write_initial_values(const Tensor& parameter, Tensor to);

}  // namespace axle::nn::init
