// The multivariate normal distribution, and the Kullback-Leibler divergence of two of them.
#pragma once

#include "core/distributions/distribution.h"

namespace axle::distributions {

// The matrix [..., n, n] of a multivariate normal distribution. Exactly one member must be defined
// (ValueError): the covariances, their inverse, or a lower triangular factor L with a positive
// diagonal. The covariances are then L L^T.
struct Covariance {
    Tensor covariance_matrix = {}, precision_matrix = {}, scale_tril = {};
};

// The normal distribution of vectors [n] with the mean loc [..., n].
class MultivariateNormal : public Distribution {
  public:
    // Throws ShapeError if the shapes of loc and the matrix do not match. Throws ValueError if loc
    // is NaN, if a covariance or precision matrix is not symmetric, or unless scale_tril is lower
    // triangular with a positive diagonal. Throws linalg::LinAlgError if a covariance or precision
    // matrix is not positive-definite.
    MultivariateNormal(const Tensor& loc, const Covariance& matrix, bool validate_args = true);
    Tensor rsample(const Shape& sample_shape = {}) const override;
    bool has_rsample() const override { return true; }
    Tensor log_prob(const Tensor& value) const override;
    Tensor entropy() const override;
    Tensor mean() const override { return loc; }
    Tensor variance() const override;
    Tensor covariance_matrix() const;
    Tensor precision_matrix() const;

    Tensor loc, scale_tril;
};

// Returns the Kullback-Leibler divergence of p from q (see kl.h) for each distribution of the
// broadcast batch. Throws ShapeError if the event shapes differ, or if the batch shapes cannot be
// broadcast.
Tensor kl_divergence(const MultivariateNormal& p, const MultivariateNormal& q);

}  // namespace axle::distributions
