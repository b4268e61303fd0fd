// Kullback-Leibler divergences. The pairs with MultivariateNormal and Independent are declared with
// these classes.
#pragma once

#include "core/distributions/discrete.h"
#include "core/distributions/gamma.h"
#include "core/distributions/intervals.h"
#include "core/distributions/normal.h"

namespace axle::distributions {

// Return the divergence of p from q, the mean of p.log_prob(x) - q.log_prob(x) over samples x of p,
// for each distribution of the broadcast batch. The divergence is infinite if the support of q does
// not contain the support of p. Throw ShapeError if the event shapes or the numbers of categories
// differ, or if the batch shapes cannot be broadcast.
Tensor kl_divergence(const Normal& p, const Normal& q);
Tensor kl_divergence(const LogNormal& p, const LogNormal& q);
Tensor kl_divergence(const Categorical& p, const Categorical& q);
Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q);
Tensor kl_divergence(const Uniform& p, const Uniform& q);
Tensor kl_divergence(const Exponential& p, const Exponential& q);
Tensor kl_divergence(const Gamma& p, const Gamma& q);
Tensor kl_divergence(const Beta& p, const Beta& q);
Tensor kl_divergence(const Dirichlet& p, const Dirichlet& q);
Tensor kl_divergence(const Laplace& p, const Laplace& q);
Tensor kl_divergence(const Normal& p, const Laplace& q);
Tensor kl_divergence(const Laplace& p, const Normal& q);
Tensor kl_divergence(const Uniform& p, const Normal& q);
Tensor kl_divergence(const Normal& p, const Uniform& q);
Tensor kl_divergence(const Laplace& p, const Uniform& q);

}  // namespace axle::distributions
