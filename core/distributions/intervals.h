// Uniform, Exponential and Laplace, whose samples are functions of uniformly distributed numbers.
#pragma once

#include "core/distributions/distribution.h"

namespace axle::distributions {

// The uniform distribution in [low, high).
class Uniform : public Distribution {
  public:
    // Throws ValueError unless low is below high.
    Uniform(const Parameter& low, const Parameter& high, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Tensor low, high;
};

// The exponential distribution with the density rate e^(-rate x).
class Exponential : public Distribution {
  public:
    // Throws ValueError unless the rate is positive.
    explicit Exponential(const Parameter& rate, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Tensor rate;
};

// The distribution with the density e^(-|x - loc| / scale) / (2 scale).
class Laplace : public Distribution {
  public:
    // Throws ValueError if loc is NaN, or unless the scale is positive.
    Laplace(const Parameter& loc, const Parameter& scale, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override { return loc; }
    Tensor variance() const override;

    Tensor loc, scale;
};

}  // namespace axle::distributions
