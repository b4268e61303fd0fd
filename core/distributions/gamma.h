// Gamma, Beta and Dirichlet. Gradients of their samples are implicit reparameterization gradients
// (Figurnov, Mohamed and Mnih, arXiv:1805.08498). They are computed on the host, so the backward
// pass of rsample() waits for a GPU.
#pragma once

#include "core/distributions/distribution.h"

namespace axle::distributions {

// The distribution with the density rate^c x^(c - 1) e^(-rate x) / gamma(c) for a concentration c.
class Gamma : public Distribution {
  public:
    // Throws ValueError unless concentration and rate are positive.
    Gamma(const Parameter& concentration, const Parameter& rate, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Tensor concentration, rate;
};

// A distribution of vectors of positive numbers with the sum 1. The event is the last dimension.
class Dirichlet : public Distribution {
  public:
    // Throws ValueError unless the concentrations are positive, and ShapeError if they are 0-d.
    explicit Dirichlet(const Tensor& concentration, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Tensor concentration;
};

// The distribution in [0, 1] with a density proportional to x^(a - 1) (1 - x)^(b - 1).
class Beta : public Distribution {
  public:
    // concentration1 is a, and concentration0 is b. Throws ValueError unless they are positive.
    Beta(const Parameter& concentration1, const Parameter& concentration0,
         bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Tensor concentration1, concentration0;

  private:
    Dirichlet pair_;
};

// Returns logarithms of samples of Gamma(concentration, 1) in the shape of the concentrations.
// Throws DTypeError unless the concentrations are floating. The gradient cannot be differentiated
// again. Uses the method of Marsaglia and Tsang, 2000, "A Simple Method for Generating Gamma
// Variables".
Tensor standard_gamma_logarithm(const Tensor& concentration);
// Returns d ln(z) / d concentration for ln(z), a logarithm of a sample of Gamma(concentration, 1).
double standard_gamma_slope(double concentration, double logarithm);

}  // namespace axle::distributions
