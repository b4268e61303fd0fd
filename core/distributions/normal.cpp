#include "core/distributions/normal.h"

namespace axle::distributions {
namespace {

constexpr double kHalfLogTwoPi = 0.918938533204672741780;  // ln(2 pi) / 2

}  // namespace

Normal::Normal(const Parameter& mean, const Parameter& deviation, bool validate_args)
    : Normal("Normal", mean, deviation, validate_args) {}

Normal::Normal(const char* name, const Parameter& mean, const Parameter& deviation,
               bool validate_args)
    : Distribution(name, validate_args) {
    const std::vector<Tensor> p = broadcast_parameters(name, {mean, deviation});
    loc = p[0], scale = p[1];
    set_shapes(loc.shape());
    if (!validate_args) return;
    check_not_nan(name, "loc", loc);
    check_condition(name, "scale", "positive", gt(scale.detach(), 0), scale);
}

Tensor Normal::rsample(const Shape& sample_shape) const {
    const Tensor noise =
        randn(sample_size(sample_shape), {.dtype = loc.dtype(), .device = loc.device()});
    return add(loc, mul(noise, scale));
}

Tensor Normal::log_prob(const Tensor& value) const {
    check_value(value, "a number (not NaN)", eq(value.detach(), value.detach()));
    const Tensor squares = div(square(sub(value, loc)), mul(square(scale), 2));
    return sub(neg(add(squares, log(scale))), kHalfLogTwoPi);
}

Tensor Normal::entropy() const { return add(log(scale), 0.5 + kHalfLogTwoPi); }

LogNormal::LogNormal(const Parameter& loc, const Parameter& scale, bool validate_args)
    : Distribution("LogNormal", validate_args), base("LogNormal", loc, scale, validate_args) {
    set_shapes(base.batch_shape());
}

Tensor LogNormal::rsample(const Shape& sample_shape) const {
    return exp(base.rsample(sample_shape));
}

Tensor LogNormal::log_prob(const Tensor& value) const {
    check_value(value, "positive", gt(value.detach(), 0));
    const Tensor logarithm = log(value);
    return sub(base.log_prob(logarithm), logarithm);
}

Tensor LogNormal::entropy() const { return add(base.entropy(), base.loc); }

Tensor LogNormal::mean() const { return exp(add(base.loc, div(square(base.scale), 2))); }

Tensor LogNormal::variance() const {
    const Tensor s = square(base.scale);
    return mul(expm1(s), exp(add(mul(base.loc, 2), s)));
}

}  // namespace axle::distributions
