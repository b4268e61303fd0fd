// Samples of the standard gamma distribution and their gradients.
#include <cmath>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/distributions/gamma.h"
#include "core/launch.h"
#include "kernels/thread_pool.h"

namespace axle::distributions {
namespace {

constexpr double kPrecision = 1e-15;
constexpr int kMaxTerms = 100'000;
// Each round accepts at least 95% of the proposals. Samples that no round accepts, at most 4e-11 of
// all samples, are replaced by a - 1/3, which is close to the median.
constexpr int kRounds = 8;

double digamma_of(double x) {
    double sum = 0;
    for (; x < 10; ++x) sum -= 1 / x;
    const double r = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x -
           r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r / 132))));
}

// A number and its derivative with respect to the concentration.
struct Dual {
    double value, slope;
};
Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.value * b.slope + a.slope * b.value};
}
Dual operator/(Dual a, Dual b) {
    const double quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
}

// Returns the sum of z^k / ((a + 1) ... (a + k)), to which the distribution function is
// proportional.
Dual series(double a, double z) {
    Dual sum = {1, 0}, term = {1, 0};
    for (int k = 1; k < kMaxTerms; ++k) {
        term = term * (Dual{z, 0} / Dual{a + k, 1});
        sum = sum + term;
        if (term.value < kPrecision * sum.value &&
            std::abs(term.slope) <= kPrecision * std::abs(sum.slope))
            break;
    }
    return sum;
}

// Returns the continued fraction to which 1 minus the distribution function is proportional (the
// method of Lentz), for z above a + 1.
Dual fraction(double a, double z) {
    const Dual one = {1, 0};
    Dual b = {z + 1 - a, -1}, c = {1e300, 0}, d = one / b, h = d;
    for (int i = 1; i < kMaxTerms; ++i) {
        const Dual numerator = {-i * (i - a), static_cast<double>(i)};
        b.value += 2;
        d = one / (numerator * d + b);
        c = b + numerator / c;
        const Dual change = c * d;
        h = h * change;
        if (std::abs(change.value - 1) < kPrecision && std::abs(change.slope) < kPrecision) break;
    }
    return h;
}

}  // namespace

// The derivative is -(dF / da) / (z f) with the distribution function F and the density f:
// F = z^a e^-z series / gamma(a + 1) and 1 - F = z^a e^-z fraction / gamma(a).
double standard_gamma_slope(double a, double logarithm) {
    const double z = std::exp(logarithm);
    if (z <= a + 1) {
        const Dual s = series(a, z);
        return -(s.value * (logarithm - digamma_of(a + 1)) + s.slope) / a;
    }
    const Dual h = fraction(a, z);
    return h.value * (logarithm - digamma_of(a)) + h.slope;
}

Tensor standard_gamma_logarithm(const Tensor& concentration) {
    check_device("standard_gamma_logarithm", {&concentration});
    check_floating("standard_gamma_logarithm", concentration);
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor a = to(concentration.detach(), f64);
        const TensorOptions like{.dtype = f64, .device = a.device()};
        // For a below 1, a sample for a is a sample for a + 1 times u^(1 / a).
        const Tensor is_small = lt(a, 1);
        const Tensor boost = div(log(sub(1, rand(a.shape(), like))), a);
        const Tensor d = sub(where(is_small, add(a, 1), a), 1.0 / 3);
        const Tensor c = rsqrt(mul(d, 9));
        Tensor result = log(d),
               is_done = zeros(a.shape(), {.dtype = boolean, .device = a.device()});
        for (int round = 0; round < kRounds; ++round) {
            const Tensor x = randn(a.shape(), like);
            const Tensor u = sub(1, rand(a.shape(), like));  // in (0, 1]
            const Tensor root = add(mul(c, x), 1), v = mul(mul(root, root), root);
            const Tensor is_positive = gt(v, 0);
            const Tensor log_v = log(where(is_positive, v, 1));
            const Tensor bound = add(mul(square(x), 0.5), mul(d, add(sub(1, v), log_v)));
            const Tensor is_accepted = logical_and(is_positive, lt(log(u), bound));
            result =
                where(logical_and(is_accepted, logical_not(is_done)), add(log(d), log_v), result);
            is_done = logical_or(is_done, is_accepted);
        }
        y = where(is_small, add(result, boost), result);
    }
    const Tensor logarithm = y;
    return record(
        "standard_gamma", to(y, concentration.dtype()), {concentration},
        [a = saved(concentration), y = saved(logarithm)](const Grads& dy, Needs) -> Grads {
            if (grad_enabled()) refuse_double_backward("standard_gamma");
            const Tensor at = a, samples = y;
            if (at.device().is_meta()) return {empty_like(at)};
            const Tensor concentrations = contiguous(to(to(at, f64), Device::cpu()));
            const Tensor logarithms = contiguous(to(samples, Device::cpu()));
            Tensor slopes = empty_like(logarithms);
            const double *const from = concentrations.data<double>(), *const l =
                                                                          logarithms.data<double>();
            double* const result = slopes.data<double>();
            launch(Device::cpu(), [&](auto&) {
                kernels::parallel_ranges(slopes.numel(), 256,
                                         [&](std::int64_t begin, std::int64_t end) {
                                             for (std::int64_t i = begin; i < end; ++i)
                                                 result[i] = standard_gamma_slope(from[i], l[i]);
                                         });
            });
            return {mul(dy[0], to(to(slopes, at.device()), dy[0].dtype()))};
        });
}

}  // namespace axle::distributions
