// Independent: a distribution of several independent elements.
#pragma once

#include <utility>

#include "core/distributions/kl.h"
#include "core/distributions/multivariate_normal.h"

namespace axle::distributions {

// Makes the last dimensions of the batch of a distribution a part of the event: log-probabilities
// and entropies are summed over them.
//
//     const Independent policy(Normal(mean, std), 1);   // vectors [n] for mean [batch, n]
template <class Base>
class Independent : public Distribution {
  public:
    // Throws ValueError unless reinterpreted_batch_ndims is in [0, dimensions of the batch].
    Independent(Base base_, int reinterpreted_batch_ndims, bool validate_args = true)
        : Distribution("Independent", validate_args),
          base(std::move(base_)),
          ndims(reinterpreted_batch_ndims) {
        const Shape& from = base.batch_shape();
        if (ndims < 0 || ndims > from.size())
            throw ValueError(str("Independent: reinterpreted_batch_ndims must be in [0, ",
                                 from.size(), "] for the batch shape ", from, ": ", ndims));
        Shape batch, event;
        for (int i = 0; i < from.size(); ++i)
            (i < from.size() - ndims ? batch : event).push_back(from[i]);
        for (const std::int64_t n : base.event_shape()) event.push_back(n);
        set_shapes(batch, event);
    }
    Tensor rsample(const Shape& sample_shape = {}) const override {
        return base.rsample(sample_shape);
    }
    bool has_rsample() const override { return base.has_rsample(); }
    Tensor log_prob(const Tensor& value) const override { return summed(base.log_prob(value)); }
    Tensor entropy() const override { return summed(base.entropy()); }
    Tensor mean() const override { return base.mean(); }
    Tensor variance() const override { return base.variance(); }

    Base base;
    int ndims;

    // Returns the sum over the dimensions that became a part of the event.
    Tensor summed(const Tensor& x) const {
        Dims dims;
        for (int i = 1; i <= ndims; ++i) dims.push_back(-i);
        return dims.empty() ? x : sum(x, dims);
    }

  protected:
    Tensor draw(const Shape& sample_shape) const override { return base.sample(sample_shape); }
};

// Returns the Kullback-Leibler divergence of p from q (see kl.h) for each distribution of the
// broadcast batch: the sum of the divergences of the independent elements. Throws ValueError if p
// and q differ in the number of reinterpreted dimensions, and the errors of the divergence of their
// bases.
template <class P, class Q>
Tensor kl_divergence(const Independent<P>& p, const Independent<Q>& q) {
    if (p.ndims != q.ndims)
        throw ValueError(
            str("kl_divergence: p and q must have the same number of reinterpreted dimensions: p ",
                p.ndims, ", q ", q.ndims));
    return p.summed(kl_divergence(p.base, q.base));
}

}  // namespace axle::distributions
