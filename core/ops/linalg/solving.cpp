// Linear equations, Cholesky factors and determinants. The gradients are from Giles, 2008,
// "Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic Differentiation";
// the gradient of cholesky() is from Murray, 2016, "Differentiation of the Cholesky decomposition"
// (arXiv:1602.07527).
#include <limits>

#include "core/ops/linalg/matrices.h"

namespace axle::linalg {
namespace {

// Returns the solutions of A X = B without a gradient. A and B have the same batch dimensions.
// Throws LinAlgError if a matrix is singular.
Tensor solutions(const char* op, const Tensor& a, const Tensor& b) {
    if (b.device().is_meta()) return empty_like(b);
    const std::int64_t n = a.size(-1), k = b.size(-1);
    const Tensor from = host_matrices(a);
    Tensor x = host_copy(b);
    const double* const matrix = from.data<double>();
    double* const result = x.data<double>();
    if (n == 0) return to(x, b.device());
    const HostError error = for_each_matrix(a, n * n * (n + k), [&](std::int64_t i) {
        return host::solve(n, k, matrix + i * n * n, result + i * n * k);
    });
    if (error.matrix >= 0)
        throw LinAlgError(str(error_prefix(op, a, error), "the matrix is singular: pivot ",
                              error.number, " is 0: the shape is ", a.shape()));
    return to(x, b.device());
}

// Returns the lower Cholesky factors of x. Throws LinAlgError if a matrix is not positive-definite.
Tensor lower_factor(const char* op, const Tensor& x) {
    Tensor y;
    if (x.device().is_meta()) {
        y = empty_like(x);
    } else {
        const std::int64_t n = x.size(-1);
        Tensor factor = host_copy(x);
        double* const data = factor.data<double>();
        const HostError error = for_each_matrix(
            x, n * n * n, [&](std::int64_t i) { return host::cholesky(n, data + i * n * n); });
        if (error.matrix >= 0)
            throw LinAlgError(
                str(error_prefix(op, x, error),
                    "the matrix is not positive-definite: its leading minor of order ",
                    error.number, " is not positive: the shape is ", x.shape()));
        y = to(factor, x.device());
    }
    return record(op, y, {x}, [op, y = saved(y)](const Grads& dy, Needs) -> Grads {
        const Tensor factor = y, upper = transposed(factor);
        const Tensor p = tril(matmul(upper, dy[0]));
        const Tensor d = diag_embed(axle::diagonal(p, 0, -2, -1));
        const Tensor symmetric = mul(sub(add(p, transposed(p)), d), 0.5);
        const Tensor left = triangular_solution_of(op, upper, symmetric, true, false);
        return {transposed(triangular_solution_of(op, upper, transposed(left), true, false))};
    });
}

bool has_zero(const Tensor& x) {
    if (x.device().is_meta()) return false;
    for (const double value : x.to_vector())
        if (value == 0) return true;
    return false;
}

// Returns the matrices of cofactors, also of singular matrices. For x = U diag(s) V^T, the
// cofactors are det(U V^T) U diag(c) V^T. c[i] is the product of all elements of s except s[i].
Tensor cofactors(const char* op, const Tensor& x) {
    const Svd f = svd_of(op, x, false);
    const std::int64_t n = x.size(-1);
    const Tensor is_self = eq(identity_like(x, n), 1);
    const Tensor others =
        masked_fill(expand(unsqueeze(f.S, -2), x.shape()), expand(is_self, x.shape()), 1);
    const Tensor sign = determinant_of(op, matmul(f.U, f.Vh));
    const Tensor scale = mul(prod(others, -1), unsqueeze(sign, -1));
    return matmul(mul(f.U, unsqueeze(scale, -2)), f.Vh);
}

struct Determinants {
    Tensor sign, logarithm, value;
};

Determinants determinants(const Tensor& x) {
    const Shape shape = batch_shape(x);
    Determinants d = {host_result(x, shape), host_result(x, shape), host_result(x, shape)};
    if (x.device().is_meta()) return d;
    const std::int64_t n = x.size(-1);
    const Tensor from = host_matrices(x);
    const double* const matrix = from.data<double>();
    double *const sign = d.sign.data<double>(), *const logarithm = d.logarithm.data<double>(),
                  *const value = d.value.data<double>();
    for_each_matrix(x, n * n * n, [&](std::int64_t i) {
        sign[i] = value[i] = 1, logarithm[i] = 0;
        if (n > 0) host::determinant(n, matrix + i * n * n, sign[i], logarithm[i], value[i]);
        return 0;
    });
    const Device device = x.device();
    return {to(d.sign, device), to(d.logarithm, device), to(d.value, device)};
}

Tensor as_matrices(const Tensor& x) { return unsqueeze(unsqueeze(x, -1), -1); }

// Returns whether B is a vector, or a batch of vectors, in an equation with A.
bool is_vector(const Tensor& a, const Tensor& b) {
    if (b.dim() == 1) return true;
    return b.dim() == a.dim() - 1 && b.shape() == Shape(std::span<const std::int64_t>(
                                                      a.shape().begin(), a.shape().end() - 1));
}

// Throws ShapeError unless B has as many rows (or columns, if left is false) as the square matrix
// A. `right` is B as matrices; the message calls A `name`.
void check_equation(const char* op, const Tensor& a, const Tensor& b, const Tensor& right,
                    bool left, const char* name = "a") {
    if (right.size(left ? -2 : -1) != a.size(-1))
        throw ShapeError(str(op, ": b must have ", a.size(-1), left ? " rows: " : " columns: ",
                             name, " is ", a.shape(), ", b is ", b.shape()));
}

// Returns ln |determinant|, and sets the sign of the determinant.
Tensor log_determinant_of(const char* op, const Tensor& x, Tensor& sign) {
    const Determinants d = determinants(x);
    sign = d.sign;
    Tensor logarithm = d.logarithm;
    record_outputs(op, {&sign, &logarithm}, {x},
                   [op, x = saved(x)](const Grads& dy, Needs) -> Grads {
                       if (!dy[1].defined()) return {Tensor()};
                       return {mul(as_matrices(dy[1]), transposed(inverse_of(op, x)))};
                   });
    return logarithm;
}

}  // namespace

Tensor solution_of(const char* op, const Tensor& a, const Tensor& b) {
    const Tensor x = solutions(op, a, b);
    return record(op, x, {a, b},
                  [op, a = saved(a), x = saved(x)](const Grads& dy, Needs needs) -> Grads {
                      const Tensor db = solution_of(op, transposed(a), dy[0]);
                      return {needs[0] ? neg(matmul(db, transposed(x))) : Tensor(), db};
                  });
}

Tensor inverse_of(const char* op, const Tensor& x) {
    const Tensor y = solutions(op, x.detach(), expand(identity_like(x, x.size(-1)), x.shape()));
    return record(op, y, {x}, [y = saved(y)](const Grads& dy, Needs) -> Grads {
        const Tensor t = transposed(y);
        return {neg(matmul(matmul(t, dy[0]), t))};
    });
}

Tensor triangular_solution_of(const char* op, const Tensor& a, const Tensor& b, bool upper,
                              bool unit) {
    Tensor x;
    if (b.device().is_meta()) {
        x = empty_like(b);
    } else {
        const std::int64_t n = a.size(-1), k = b.size(-1);
        const Tensor from = host_matrices(a);
        Tensor result = host_copy(b);
        const double* const matrix = from.data<double>();
        double* const data = result.data<double>();
        if (n > 0 && k > 0)
            for_each_matrix(a, n * n * k, [&](std::int64_t i) {
                host::solve_triangular(n, k, matrix + i * n * n, upper, unit, data + i * n * k);
                return 0;
            });
        x = to(result, b.device());
    }
    return record(
        op, x, {a, b},
        [op, a = saved(a), x = saved(x), upper, unit](const Grads& dy, Needs needs) -> Grads {
            const Tensor db = triangular_solution_of(op, transposed(a), dy[0], !upper, unit);
            if (!needs[0]) return {Tensor(), db};
            const Tensor da = neg(matmul(db, transposed(x)));
            return {upper ? triu(da, unit ? 1 : 0) : tril(da, unit ? -1 : 0), db};
        });
}

Tensor determinant_of(const char* op, const Tensor& x) {
    const Tensor y = determinants(x).value;
    return record(op, y, {x}, [op, x = saved(x), y = saved(y)](const Grads& dy, Needs) -> Grads {
        const Tensor at = x, value = y;
        if (has_zero(value.detach())) return {mul(as_matrices(dy[0]), cofactors(op, at))};
        return {mul(as_matrices(mul(dy[0], value)), transposed(inverse_of(op, at)))};
    });
}

Tensor cholesky(const Tensor& x, bool upper) {
    const profiler::OpScope scope("cholesky");
    const Tensor a = square_matrices("cholesky", x);
    const Tensor y =
        upper ? transposed(lower_factor("cholesky", transposed(a))) : lower_factor("cholesky", a);
    return to(contiguous(y), result_dtype(x));
}

Tensor solve(const Tensor& a, const Tensor& b, bool left) {
    const profiler::OpScope scope("solve");
    check_device("solve", {&a, &b});
    Tensor matrix = square_matrices("solve", a, "a");
    check_same_dtype("solve", a, b);
    const bool vector = is_vector(a, b);
    Tensor right = vector ? unsqueeze(to(b, f64), -1) : matrices("solve", b, "b");
    if (vector && !left)
        throw ShapeError(str("solve: b must be matrices if left is false: b is ", b.shape()));
    check_equation("solve", a, b, right, left);
    if (!left) matrix = transposed(matrix), right = transposed(right);
    const auto [coefficients, results] = broadcast_batches("solve", matrix, right);
    Tensor x = solution_of("solve", coefficients, results);
    if (!left) x = contiguous(transposed(x));
    return to(vector ? squeeze(x, -1) : x, result_dtype(a));
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left,
                        bool unitriangular) {
    const profiler::OpScope scope("solve_triangular");
    check_device("solve_triangular", {&a, &b});
    Tensor matrix = square_matrices("solve_triangular", a, "a");
    check_same_dtype("solve_triangular", a, b);
    Tensor right = matrices("solve_triangular", b, "b");
    check_equation("solve_triangular", a, b, right, left);
    if (!left) matrix = transposed(matrix), right = transposed(right), upper = !upper;
    const auto [coefficients, results] = broadcast_batches("solve_triangular", matrix, right);
    const Tensor x =
        triangular_solution_of("solve_triangular", coefficients, results, upper, unitriangular);
    return to(left ? x : contiguous(transposed(x)), result_dtype(a));
}

Tensor inv(const Tensor& x) {
    const profiler::OpScope scope("inv");
    return to(inverse_of("inv", square_matrices("inv", x)), result_dtype(x));
}

Tensor det(const Tensor& x) {
    const profiler::OpScope scope("det");
    return to(determinant_of("det", square_matrices("det", x)), result_dtype(x));
}

std::pair<Tensor, Tensor> slogdet(const Tensor& x) {
    const profiler::OpScope scope("slogdet");
    Tensor sign;
    const Tensor logarithm = log_determinant_of("slogdet", square_matrices("slogdet", x), sign);
    return {to(sign, result_dtype(x)), to(logarithm, result_dtype(x))};
}

}  // namespace axle::linalg

namespace axle {

Tensor logdet(const Tensor& x) {
    const profiler::OpScope scope("logdet");
    Tensor sign;
    const Tensor logarithm =
        linalg::log_determinant_of("logdet", linalg::square_matrices("logdet", x), sign);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return to(masked_fill(logarithm, lt(sign.detach(), 0), nan), linalg::result_dtype(x));
}

Tensor cholesky_solve(const Tensor& b, const Tensor& factor, bool upper) {
    const profiler::OpScope scope("cholesky_solve");
    check_device("cholesky_solve", {&b, &factor});
    const Tensor f = linalg::square_matrices("cholesky_solve", factor, "factor");
    check_same_dtype("cholesky_solve", b, factor, "b", "factor");
    const Tensor right = linalg::matrices("cholesky_solve", b, "b");
    linalg::check_equation("cholesky_solve", factor, b, right, true, "factor");
    const auto [matrix, results] = linalg::broadcast_batches("cholesky_solve", f, right);
    const Tensor lower = upper ? linalg::transposed(matrix) : matrix;
    const Tensor y = linalg::triangular_solution_of("cholesky_solve", lower, results, false, false);
    return to(
        linalg::triangular_solution_of("cholesky_solve", linalg::transposed(lower), y, true, false),
        linalg::result_dtype(b));
}

Tensor cholesky_inverse(const Tensor& factor, bool upper) {
    const profiler::OpScope scope("cholesky_inverse");
    const Tensor f = linalg::square_matrices("cholesky_inverse", factor, "factor");
    const Tensor lower = upper ? linalg::transposed(f) : f;
    const Tensor identity = expand(linalg::identity_like(f, f.size(-1)), f.shape());
    const Tensor y =
        linalg::triangular_solution_of("cholesky_inverse", lower, identity, false, false);
    return to(matmul(linalg::transposed(y), y), linalg::result_dtype(factor));
}

std::pair<Tensor, Tensor> triangular_solve(const Tensor& b, const Tensor& a, bool upper,
                                           bool transpose, bool unitriangular) {
    const profiler::OpScope scope("triangular_solve");
    check_device("triangular_solve", {&b, &a});
    const Tensor matrix = linalg::square_matrices("triangular_solve", a, "a");
    check_same_dtype("triangular_solve", b, a, "b", "a");
    const Tensor right = linalg::matrices("triangular_solve", b, "b");
    linalg::check_equation("triangular_solve", a, b, right, true);
    const auto [coefficients, results] =
        linalg::broadcast_batches("triangular_solve", matrix, right);
    const Tensor x = linalg::triangular_solution_of(
        "triangular_solve", transpose ? linalg::transposed(coefficients) : coefficients, results,
        upper != transpose, unitriangular);
    return {to(x, linalg::result_dtype(b)),
            clone(expand(a, linalg::with_sizes(linalg::batch_shape(coefficients),
                                               {a.size(-2), a.size(-1)})))};
}

}  // namespace axle
