// Normal and LogNormal.
#pragma once

#include "core/distributions/distribution.h"

namespace axle::distributions {

// The normal distribution with the mean loc and the standard deviation scale.
class Normal : public Distribution {
  public:
    // Throws ValueError if loc is NaN, or unless the scale is positive.
    Normal(const Parameter& loc, const Parameter& scale, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override { return loc; }
    Tensor variance() const override { return square(scale); }

    Tensor loc, scale;

  private:
    friend class LogNormal;
    // Errors name the distribution `name`.
    Normal(const char* name, const Parameter& loc, const Parameter& scale, bool validate_args);
};

// The distribution of e^x for a normally distributed x.
class LogNormal : public Distribution {
  public:
    // The parameters of the distribution of x. Throws ValueError as Normal does.
    LogNormal(const Parameter& loc, const Parameter& scale, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Normal base;  // the distribution of the logarithm
};

}  // namespace axle::distributions
