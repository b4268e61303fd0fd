#include "core/distributions/gamma.h"

#include <algorithm>

#include "core/autograd/autograd.h"
#include "core/check.h"

namespace axle::distributions {
namespace {

// Returns x log(y), which is 0 if x is 0.
Tensor x_log_y(const Tensor& x, const Tensor& y) {
    const Tensor is_zero = eq(x.detach(), 0);
    const Tensor at =
        masked_fill(expand(y, broadcast_shapes("xlogy", x.shape(), y.shape())), is_zero, 1);
    return where(is_zero, mul(x, 0), mul(x, log(at)));
}

double tiny(DType dtype) { return dtype == f64 ? 0x1p-1022 : dtype == f16 ? 0x1p-14 : 0x1p-126; }

Tensor stack_last(const Tensor& a, const Tensor& b) { return stack({a, b}, -1); }

}  // namespace

Gamma::Gamma(const Parameter& shape_parameter, const Parameter& inverse_scale, bool validate_args)
    : Distribution("Gamma", validate_args) {
    const std::vector<Tensor> p = broadcast_parameters("Gamma", {shape_parameter, inverse_scale});
    concentration = p[0], rate = p[1];
    set_shapes(rate.shape());
    if (!validate_args) return;
    check_condition("Gamma", "concentration", "positive", gt(concentration.detach(), 0),
                    concentration);
    check_condition("Gamma", "rate", "positive", gt(rate.detach(), 0), rate);
}

Tensor Gamma::rsample(const Shape& sample_shape) const {
    const Tensor z =
        exp(standard_gamma_logarithm(expand(concentration, sample_size(sample_shape))));
    const Tensor x = div(z, rate);
    // Samples below the least positive normal number become this number, so that none is 0.
    return where(lt(x.detach(), tiny(x.dtype())),
                 full({}, tiny(x.dtype()), {x.dtype(), x.device()}), x);
}

Tensor Gamma::log_prob(const Tensor& value) const {
    check_value(value, "at least 0", ge(value.detach(), 0));
    const Tensor power = x_log_y(sub(concentration, 1), value);
    return sub(sub(add(x_log_y(concentration, rate), power), mul(rate, value)),
               lgamma(concentration));
}

Tensor Gamma::entropy() const {
    const Tensor& c = concentration;
    return add(add(sub(c, log(rate)), lgamma(c)), mul(sub(1, c), digamma(c)));
}
Tensor Gamma::mean() const { return div(concentration, rate); }
Tensor Gamma::variance() const { return div(concentration, square(rate)); }

Dirichlet::Dirichlet(const Tensor& concentrations, bool validate_args)
    : Distribution("Dirichlet", validate_args), concentration(concentrations) {
    check_device("Dirichlet", {&concentration});
    check_floating("Dirichlet", concentration, "concentration");
    if (concentration.dim() == 0)
        throw ShapeError(
            str("Dirichlet: concentration must have at least one dimension: its shape is ",
                concentration.shape()));
    Shape batch = concentration.shape();
    batch.erase(batch.size() - 1);
    set_shapes(batch, concentration.size(-1));
    if (validate_args)
        check_condition("Dirichlet", "concentration", "positive", gt(concentration.detach(), 0),
                        concentration);
}

// Divides gamma samples by their sum. Computes with logarithms, so that small concentrations do not
// give 0 / 0.
Tensor Dirichlet::rsample(const Shape& sample_shape) const {
    return softmax(standard_gamma_logarithm(expand(concentration, sample_size(sample_shape))), -1);
}

Tensor Dirichlet::log_prob(const Tensor& value) const {
    const Tensor at = value.detach();
    // The rounding error of a sum of 16-bit numbers is larger.
    const double error = at.dtype() == f64 || at.dtype() == f32 ? 1e-6 : 1e-2;
    check_value(value, "at least 0, with the sum 1",
                logical_and(all(ge(at, 0), -1), lt(abs(sub(sum(at, -1), 1)), error)));
    const Tensor powers = sum(x_log_y(sub(concentration, 1), value), -1);
    return sub(add(powers, lgamma(sum(concentration, -1))), sum(lgamma(concentration), -1));
}

Tensor Dirichlet::entropy() const {
    const double n = static_cast<double>(concentration.size(-1));
    const Tensor total = sum(concentration, -1);
    const Tensor constant = sub(sum(lgamma(concentration), -1), lgamma(total));
    const Tensor own = sum(mul(sub(concentration, 1), digamma(concentration)), -1);
    return sub(sub(constant, mul(sub(n, total), digamma(total))), own);
}

Tensor Dirichlet::mean() const { return div(concentration, sum(concentration, -1, true)); }
Tensor Dirichlet::variance() const {
    const Tensor total = sum(concentration, -1, true);
    return div(mul(concentration, sub(total, concentration)), mul(square(total), add(total, 1)));
}

Beta::Beta(const Parameter& a, const Parameter& b, bool validate_args)
    : Distribution("Beta", validate_args), pair_([&] {
          const std::vector<Tensor> p = broadcast_parameters("Beta", {a, b});
          concentration1 = p[0], concentration0 = p[1];
          if (validate_args) {
              check_condition("Beta", "concentration1", "positive", gt(p[0].detach(), 0), p[0]);
              check_condition("Beta", "concentration0", "positive", gt(p[1].detach(), 0), p[1]);
          }
          return Dirichlet(stack_last(p[0], p[1]), validate_args);
      }()) {
    set_shapes(pair_.batch_shape());
}

Tensor Beta::rsample(const Shape& sample_shape) const {
    return select(pair_.rsample(sample_shape), -1, 0);
}

Tensor Beta::log_prob(const Tensor& value) const {
    check_value(value, "in [0, 1]", logical_and(ge(value.detach(), 0), le(value.detach(), 1)));
    return pair_.log_prob(stack_last(value, sub(1, value)));
}

Tensor Beta::entropy() const { return pair_.entropy(); }
Tensor Beta::mean() const { return div(concentration1, add(concentration1, concentration0)); }
Tensor Beta::variance() const {
    const Tensor total = add(concentration1, concentration0);
    return div(mul(concentration1, concentration0), mul(square(total), add(total, 1)));
}

}  // namespace axle::distributions
