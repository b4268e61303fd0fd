// Distribution: the base class of probability distributions, with the names of torch.distributions.
//
//     const distributions::Normal policy(mean, std);
//     const Tensor action = policy.sample();
//     const Tensor loss = -policy.log_prob(action) * reward;
//
// The parameters of a distribution broadcast to its batch shape. One sample of each distribution of
// the batch has the event shape: [] for one number, [n] for a vector. Parameters and values on the
// CPU are checked (ValueError), unless validate_args is false. Constructors also throw ShapeError
// if the parameters do not broadcast, DTypeError unless they are floating, and DeviceError if they
// are on different devices.
#pragma once

#include <type_traits>
#include <vector>

#include "core/ops.h"

namespace axle::distributions {

// A parameter of a distribution: a floating tensor or a number. A number gets the dtype and device
// of the last parameter that is a tensor, or f32 on the CPU if all parameters are numbers.
class Parameter {
  public:
    Parameter(const Tensor& tensor) : tensor_(tensor) {}  // NOLINT(google-explicit-constructor)
    template <class T>
        requires std::is_arithmetic_v<T>
    Parameter(T number) : number_(static_cast<double>(number)) {}  // NOLINT

    const Tensor& tensor() const { return tensor_; }  // undefined for a number
    double number() const { return number_; }

  private:
    Tensor tensor_;
    double number_ = 0;
};

// Returns the parameters as tensors of one shape. As in PyTorch, their dtypes can differ. Throws
// ShapeError if they do not broadcast, DTypeError unless they are floating, and DeviceError if they
// are on different devices; the messages name the distribution.
std::vector<Tensor> broadcast_parameters(const char* distribution,
                                         const std::vector<Parameter>& parameters);
// Throws ValueError "distribution: name must be condition: ..." if an element of is_fulfilled is
// false. If `values` has the same shape, the message contains the value of this element. Does not
// read a tensor on a GPU.
void check_condition(const char* distribution, const char* name, const char* condition,
                     const Tensor& is_fulfilled, const Tensor& values = {});
// Throws the error of check_condition() if an element is NaN.
void check_not_nan(const char* distribution, const char* name, const Tensor& x);

// A batch of probability distributions. Copies share their parameters, which must not be changed.
class Distribution {
  public:
    virtual ~Distribution() = default;

    const Shape& batch_shape() const { return batch_shape_; }
    const Shape& event_shape() const { return event_shape_; }

    // Returns samples [sample_shape..., batch_shape..., event_shape...] from the default generator,
    // without a gradient.
    Tensor sample(const Shape& sample_shape = {}) const;
    // Returns samples with a gradient with respect to the parameters. Throws UsageError unless
    // has_rsample() is true.
    virtual Tensor rsample(const Shape& sample_shape = {}) const;
    virtual bool has_rsample() const { return false; }
    // Returns the logarithm of the density or of the probability of values. Their shape must
    // broadcast with batch_shape + event_shape (ShapeError); the result has the common shape
    // without the event dimensions. Throws ValueError for a value outside of the support, if values
    // are checked.
    virtual Tensor log_prob(const Tensor& value) const = 0;
    // entropy() returns one number for each distribution of the batch; mean() and variance() return
    // one for each element of the event. The moments of Categorical are NaN.
    virtual Tensor entropy() const = 0;
    virtual Tensor mean() const = 0;
    virtual Tensor variance() const = 0;
    Tensor stddev() const { return sqrt(variance()); }

  protected:
    Distribution(const char* name, bool validate_args)
        : name_(name), validate_args_(validate_args) {}
    Distribution(const Distribution&) = default;
    Distribution& operator=(const Distribution&) = default;

    void set_shapes(const Shape& batch, const Shape& event = {}) {
        batch_shape_ = batch, event_shape_ = event;
    }
    // Draws samples of this shape; called under NoGrad. The default calls rsample().
    virtual Tensor draw(const Shape& sample_shape) const;
    Shape sample_size(const Shape& sample_shape) const;  // sample_shape + batch + event
    // Throws the error of check_condition() for the value if validate_args is true, and ShapeError
    // if the shape of the value does not broadcast with batch_shape + event_shape.
    void check_value(const Tensor& value, const char* condition, const Tensor& is_fulfilled) const;
    bool validates() const { return validate_args_; }
    const char* name() const { return name_; }

  private:
    const char* name_;
    Shape batch_shape_, event_shape_;
    bool validate_args_;
};

}  // namespace axle::distributions
