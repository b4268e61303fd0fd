#include "core/distributions/kl.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace axle::distributions {
namespace {

constexpr double kInfiniteDivergence = std::numeric_limits<double>::infinity();

// Returns x with `value` where the mask is true; x and the mask broadcast.
Tensor replaced(const Tensor& x, const Tensor& mask, double value) { return where(mask, value, x); }

Tensor infinite_like(const Tensor& x) { return full_like(x, kInfiniteDivergence); }

}  // namespace

Tensor kl_divergence(const Normal& p, const Normal& q) {
    const Tensor ratio = square(div(p.scale, q.scale));
    const Tensor distance = square(div(sub(p.loc, q.loc), q.scale));
    return mul(sub(sub(add(ratio, distance), 1), log(ratio)), 0.5);
}

Tensor kl_divergence(const LogNormal& p, const LogNormal& q) {
    return kl_divergence(p.base, q.base);
}

Tensor kl_divergence(const Categorical& p, const Categorical& q) {
    if (p.logits.size(-1) != q.logits.size(-1))
        throw ShapeError(str("kl_divergence: the numbers of categories differ: p ",
                             p.logits.size(-1), ", q ", q.logits.size(-1)));
    Tensor t = mul(p.probs, sub(p.logits, q.logits));
    t = replaced(t, eq(q.probs.detach(), 0), kInfiniteDivergence);
    return sum(replaced(t, eq(p.probs.detach(), 0), 0), -1);
}

Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q) {
    const Tensor own = p.probs.detach(), other = q.probs.detach();
    Tensor one = mul(p.probs, sub(softplus(neg(q.logits)), softplus(neg(p.logits))));
    one = replaced(replaced(one, eq(other, 0), kInfiniteDivergence), eq(own, 0), 0);
    Tensor zero = mul(sub(1, p.probs), sub(softplus(q.logits), softplus(p.logits)));
    zero = replaced(replaced(zero, eq(other, 1), kInfiniteDivergence), eq(own, 1), 0);
    return add(one, zero);
}

Tensor kl_divergence(const Uniform& p, const Uniform& q) {
    const Tensor y = log(div(sub(q.high, q.low), sub(p.high, p.low)));
    const Tensor is_outside =
        logical_or(gt(q.low.detach(), p.low.detach()), lt(q.high.detach(), p.high.detach()));
    return replaced(y, is_outside, kInfiniteDivergence);
}

Tensor kl_divergence(const Exponential& p, const Exponential& q) {
    const Tensor ratio = div(q.rate, p.rate);
    return sub(sub(ratio, log(ratio)), 1);
}

Tensor kl_divergence(const Gamma& p, const Gamma& q) {
    const Tensor rates = mul(q.concentration, log(div(p.rate, q.rate)));
    const Tensor constants = sub(lgamma(q.concentration), lgamma(p.concentration));
    const Tensor shapes = mul(sub(p.concentration, q.concentration), digamma(p.concentration));
    const Tensor scales = mul(sub(q.rate, p.rate), div(p.concentration, p.rate));
    return add(add(rates, constants), add(shapes, scales));
}

Tensor kl_divergence(const Beta& p, const Beta& q) {
    const Tensor &a = p.concentration1, &b = p.concentration0, &c = q.concentration1,
                 &d = q.concentration0;
    const Tensor own = add(a, b), other = add(c, d);
    const Tensor constants = sub(add(add(lgamma(c), lgamma(d)), lgamma(own)),
                                 add(add(lgamma(a), lgamma(b)), lgamma(other)));
    const Tensor terms = add(mul(sub(a, c), digamma(a)), mul(sub(b, d), digamma(b)));
    return add(add(constants, terms), mul(sub(other, own), digamma(own)));
}

Tensor kl_divergence(const Dirichlet& p, const Dirichlet& q) {
    if (p.event_shape() != q.event_shape())
        throw ShapeError(str("kl_divergence: the event shapes differ: p ", p.event_shape(), ", q ",
                             q.event_shape()));
    const Tensor own = sum(p.concentration, -1), other = sum(q.concentration, -1);
    const Tensor totals = sub(lgamma(own), lgamma(other));
    const Tensor parts = sum(sub(lgamma(p.concentration), lgamma(q.concentration)), -1);
    const Tensor slopes = sub(digamma(p.concentration), unsqueeze(digamma(own), -1));
    const Tensor differences = sub(p.concentration, q.concentration);
    return add(sub(totals, parts), sum(mul(differences, slopes), -1));
}

Tensor kl_divergence(const Laplace& p, const Laplace& q) {
    const Tensor ratio = div(p.scale, q.scale), distance = abs(sub(p.loc, q.loc));
    const Tensor overlap = mul(ratio, exp(div(neg(distance), p.scale)));
    return sub(add(sub(div(distance, q.scale), log(ratio)), overlap), 1);
}

Tensor kl_divergence(const Normal& p, const Laplace& q) {
    using std::numbers::pi;
    const Tensor difference = sub(p.loc, q.loc), z = div(difference, p.scale);
    const Tensor spread = mul(mul(p.scale, std::sqrt(2 / pi)), exp(mul(square(z), -0.5)));
    const Tensor shift = mul(difference, erf(mul(z, std::sqrt(0.5))));
    const Tensor distance = div(add(spread, shift), q.scale);
    return sub(sub(distance, log(div(p.scale, q.scale))), 0.5 * (1 + std::log(0.5 * pi)));
}

Tensor kl_divergence(const Laplace& p, const Normal& q) {
    const Tensor ratio = square(div(p.scale, q.scale));
    const Tensor distance = mul(square(div(sub(p.loc, q.loc), q.scale)), 0.5);
    return sub(sub(add(ratio, distance), mul(log(mul(ratio, 2 / std::numbers::pi)), 0.5)), 1);
}

Tensor kl_divergence(const Uniform& p, const Normal& q) {
    const Tensor width = sub(p.high, p.low);
    const Tensor density = log(div(mul(q.scale, std::sqrt(2 * std::numbers::pi)), width));
    const Tensor middle = sub(div(add(p.high, p.low), 2), q.loc);
    const Tensor squares = add(div(square(width), 12), square(middle));
    return add(density, mul(div(squares, square(q.scale)), 0.5));
}

Tensor kl_divergence(const Normal& p, const Uniform& q) {
    return infinite_like(add(p.loc.detach(), q.low.detach()));
}
Tensor kl_divergence(const Laplace& p, const Uniform& q) {
    return infinite_like(add(p.loc.detach(), q.low.detach()));
}

}  // namespace axle::distributions
