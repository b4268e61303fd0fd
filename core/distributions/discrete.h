// Categorical and Bernoulli.
#pragma once

#include "core/distributions/distribution.h"

namespace axle::distributions {

// The parameters of a discrete distribution: probabilities or logits, of which exactly one must be
// defined (ValueError) and floating (DTypeError). The logits of given probabilities are computed
// after limiting the probabilities to [epsilon, 1 - epsilon] of the dtype, so that they are finite.
struct ProbsOrLogits {
    Tensor probs = {}, logits = {};
};

// A distribution of the numbers 0 to n - 1 (i64). The last dimension of the parameters is n.
// Probabilities are divided by their sum.
class Categorical : public Distribution {
  public:
    // Throws ValueError if a probability is negative, all probabilities of a distribution are 0, or
    // a normalized parameter is NaN, and ShapeError for 0-d parameters.
    explicit Categorical(const ProbsOrLogits& parameters, bool validate_args = true);
    Tensor log_prob(const Tensor& value) const override;  // value is i64 or i32 (DTypeError)
    Tensor entropy() const override;
    Tensor mean() const override;
    Tensor variance() const override;

    Tensor probs, logits;  // the logits are logarithms of probabilities

  protected:
    Tensor draw(const Shape& sample_shape) const override;
};

// A distribution of 0 and 1 in the dtype of the parameters. The logit is ln(p / (1 - p)).
class Bernoulli : public Distribution {
  public:
    // Throws ValueError for probabilities outside of [0, 1] and for logits that are NaN.
    explicit Bernoulli(const ProbsOrLogits& parameters, bool validate_args = true);
    Tensor log_prob(const Tensor& value) const override;  // value is floating (DTypeError)
    Tensor entropy() const override;
    Tensor mean() const override { return probs; }
    Tensor variance() const override;

    Tensor probs, logits;

  protected:
    Tensor draw(const Shape& sample_shape) const override;
};

}  // namespace axle::distributions
