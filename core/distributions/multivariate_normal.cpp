#include "core/distributions/multivariate_normal.h"

#include "core/check.h"
#include "core/linalg.h"

namespace axle::distributions {
namespace {

constexpr double kLogTwoPi = 1.83787706640934548356;

Tensor mirrored(const Tensor& x) { return transpose(x, -2, -1); }

// Returns the lower Cholesky factor of the inverse of a precision matrix.
Tensor factor_of_inverse(const Tensor& precision) {
    const Tensor factor = linalg::cholesky(flip(precision, {-2, -1}));
    const Tensor inverse_factor = mirrored(flip(factor, {-2, -1}));
    const Tensor identity =
        eye(precision.size(-1), {.dtype = precision.dtype(), .device = precision.device()});
    return linalg::solve_triangular(inverse_factor, identity, false);
}

Tensor half_log_determinant(const Tensor& factor) {
    return sum(log(diagonal(factor, 0, -2, -1)), -1);
}

// Returns |L^-1 x|^2 for the lower factor L.
Tensor mahalanobis(const Tensor& factor, const Tensor& x) {
    return sum(square(linalg::solve_triangular(factor, unsqueeze(x, -1), false)), {-2, -1});
}

}  // namespace

MultivariateNormal::MultivariateNormal(const Tensor& mean, const Covariance& m, bool validate_args)
    : Distribution("MultivariateNormal", validate_args) {
    const char* const op = "MultivariateNormal";
    check_device(op, {&mean});
    check_floating(op, mean, "loc");
    const int given =
        m.covariance_matrix.defined() + m.precision_matrix.defined() + m.scale_tril.defined();
    if (given != 1)
        throw ValueError(str(op,
                             ": exactly one of covariance_matrix, precision_matrix and scale_tril "
                             "must be given: ",
                             given, " are given"));
    const Tensor& matrix = m.scale_tril.defined()          ? m.scale_tril
                           : m.covariance_matrix.defined() ? m.covariance_matrix
                                                           : m.precision_matrix;
    const char* const name = m.scale_tril.defined()          ? "scale_tril"
                             : m.covariance_matrix.defined() ? "covariance_matrix"
                                                             : "precision_matrix";
    check_floating(op, matrix, name);
    const std::int64_t n = mean.dim() > 0 ? mean.size(-1) : 0;
    if (mean.dim() == 0 || matrix.dim() < 2 || matrix.size(-1) != n || matrix.size(-2) != n)
        throw ShapeError(str(op, ": loc must be [..., n] and ", name, " [..., n, n]: loc ",
                             mean.shape(), ", ", name, " ", matrix.shape()));
    if (validate_args) {
        check_not_nan(op, "loc", mean);
        const Tensor at = matrix.detach();
        if (m.scale_tril.defined()) {
            check_condition(op, "scale_tril", "lower triangular", eq(at, tril(at)), at);
            const Tensor diagonal_of_factor = diagonal(at, 0, -2, -1);
            check_condition(op, "the diagonal of scale_tril", "positive", gt(diagonal_of_factor, 0),
                            diagonal_of_factor);
        } else {
            check_condition(op, name, "symmetric",
                            le(abs(sub(at, mirrored(at))), add(mul(abs(at), 1e-5), 1e-6)), at);
        }
    }
    Shape mean_batch = mean.shape(), matrix_batch = matrix.shape();
    mean_batch.erase(mean_batch.size() - 1);
    matrix_batch.erase(matrix_batch.size() - 1), matrix_batch.erase(matrix_batch.size() - 1);
    const Shape batch = broadcast_shapes(op, mean_batch, matrix_batch);
    Shape vector = batch;
    vector.push_back(n);
    set_shapes(batch, n);
    loc = expand(mean, vector);
    const Tensor factor = [&] {
        try {
            return m.scale_tril.defined()          ? m.scale_tril
                   : m.covariance_matrix.defined() ? linalg::cholesky(m.covariance_matrix)
                                                   : factor_of_inverse(m.precision_matrix);
        } catch (const linalg::LinAlgError& error) {
            throw linalg::LinAlgError(str(op, ": ", name, ": ", error.what()));
        }
    }();
    vector.push_back(n);
    scale_tril = expand(factor, vector);
}

Tensor MultivariateNormal::rsample(const Shape& sample_shape) const {
    const Tensor noise =
        randn(sample_size(sample_shape), {.dtype = loc.dtype(), .device = loc.device()});
    return add(loc, squeeze(matmul(scale_tril, unsqueeze(noise, -1)), -1));
}

Tensor MultivariateNormal::log_prob(const Tensor& value) const {
    check_value(value, "numbers (not NaN)", eq(value.detach(), value.detach()));
    const double n = static_cast<double>(loc.size(-1));
    const Tensor m = mahalanobis(scale_tril, sub(value, loc));
    return sub(mul(add(m, n * kLogTwoPi), -0.5), half_log_determinant(scale_tril));
}

Tensor MultivariateNormal::entropy() const {
    const double n = static_cast<double>(loc.size(-1));
    return add(half_log_determinant(scale_tril), 0.5 * n * (1 + kLogTwoPi));
}

Tensor MultivariateNormal::variance() const { return sum(square(scale_tril), -1); }
Tensor MultivariateNormal::covariance_matrix() const {
    return matmul(scale_tril, mirrored(scale_tril));
}
Tensor MultivariateNormal::precision_matrix() const { return cholesky_inverse(scale_tril); }

Tensor kl_divergence(const MultivariateNormal& p, const MultivariateNormal& q) {
    if (p.event_shape() != q.event_shape())
        throw ShapeError(str("kl_divergence: the event shapes differ: p ", p.event_shape(), ", q ",
                             q.event_shape()));
    const double n = static_cast<double>(p.loc.size(-1));
    const Tensor volume =
        sub(half_log_determinant(q.scale_tril), half_log_determinant(p.scale_tril));
    const Tensor spread =
        sum(square(linalg::solve_triangular(q.scale_tril, p.scale_tril, false)), {-2, -1});
    const Tensor distance = mahalanobis(q.scale_tril, sub(q.loc, p.loc));
    return add(volume, mul(sub(add(spread, distance), n), 0.5));
}

}  // namespace axle::distributions
