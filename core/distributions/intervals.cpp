#include "core/distributions/intervals.h"

namespace axle::distributions {
namespace {

Tensor uniform_numbers(const Shape& shape, const Tensor& like) {
    return rand(shape, {.dtype = like.dtype(), .device = like.device()});
}

}  // namespace

Uniform::Uniform(const Parameter& from, const Parameter& to, bool validate_args)
    : Distribution("Uniform", validate_args) {
    const std::vector<Tensor> p = broadcast_parameters("Uniform", {from, to});
    low = p[0], high = p[1];
    set_shapes(low.shape());
    if (validate_args)
        check_condition("Uniform", "low", "below high", lt(low.detach(), high.detach()), low);
}

Tensor Uniform::rsample(const Shape& sample_shape) const {
    return add(low, mul(uniform_numbers(sample_size(sample_shape), low), sub(high, low)));
}

Tensor Uniform::log_prob(const Tensor& value) const {
    const Tensor at = value.detach();
    check_value(value, "in [low, high]", logical_and(ge(at, low.detach()), le(at, high.detach())));
    const Tensor is_inside = logical_and(le(low.detach(), at), gt(high.detach(), at));
    return sub(log(to(is_inside, low.dtype())), log(sub(high, low)));
}

Tensor Uniform::entropy() const { return log(sub(high, low)); }
Tensor Uniform::mean() const { return div(add(low, high), 2); }
Tensor Uniform::variance() const { return div(square(sub(high, low)), 12); }

Exponential::Exponential(const Parameter& rate_of_events, bool validate_args)
    : Distribution("Exponential", validate_args) {
    rate = broadcast_parameters("Exponential", {rate_of_events})[0];
    set_shapes(rate.shape());
    if (validate_args)
        check_condition("Exponential", "rate", "positive", gt(rate.detach(), 0), rate);
}

Tensor Exponential::rsample(const Shape& sample_shape) const {
    return div(neg(log1p(neg(uniform_numbers(sample_size(sample_shape), rate)))), rate);
}

Tensor Exponential::log_prob(const Tensor& value) const {
    check_value(value, "at least 0", ge(value.detach(), 0));
    return sub(log(rate), mul(rate, value));
}

Tensor Exponential::entropy() const { return sub(1, log(rate)); }
Tensor Exponential::mean() const { return reciprocal(rate); }
Tensor Exponential::variance() const { return reciprocal(square(rate)); }

Laplace::Laplace(const Parameter& mean, const Parameter& width, bool validate_args)
    : Distribution("Laplace", validate_args) {
    const std::vector<Tensor> p = broadcast_parameters("Laplace", {mean, width});
    loc = p[0], scale = p[1];
    set_shapes(loc.shape());
    if (!validate_args) return;
    check_not_nan("Laplace", "loc", loc);
    check_condition("Laplace", "scale", "positive", gt(scale.detach(), 0), scale);
}

Tensor Laplace::rsample(const Shape& sample_shape) const {
    // The random numbers are in (-1, 1], so that the logarithm is finite except at 1, which is
    // replaced.
    const Tensor u = sub(1, mul(uniform_numbers(sample_size(sample_shape), loc), 2));
    const double limit = loc.dtype() == f64 ? 1 - 0x1p-53 : 1 - 0x1p-24;
    const Tensor noise = mul(sign(u), log1p(neg(clamp(abs(u), {}, limit))));
    return sub(loc, mul(scale, noise));
}

Tensor Laplace::log_prob(const Tensor& value) const {
    check_value(value, "a number (not NaN)", eq(value.detach(), value.detach()));
    return sub(neg(log(mul(scale, 2))), div(abs(sub(value, loc)), scale));
}

Tensor Laplace::entropy() const { return add(log(mul(scale, 2)), 1); }
Tensor Laplace::variance() const { return mul(square(scale), 2); }

}  // namespace axle::distributions
