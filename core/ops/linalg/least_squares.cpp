// Ranks, pseudoinverses and least squares. The gradient of pinv() is from Golub and Pereyra, 1973,
// "The Differentiation of Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables
// Separate".
#include "core/ops/linalg/matrices.h"

namespace axle::linalg {
namespace {

// Returns the epsilon of f64 for f64, otherwise the epsilon of f32. 16-bit dtypes do not need a
// larger epsilon, because ops compute in f64.
double epsilon_of(DType dtype) { return dtype == f64 ? 0x1p-52 : 0x1p-23; }

// Returns the limits [..., 1] up to which the nonnegative values count as 0. Throws ValueError if
// atol or rtol is negative or NaN.
Tensor limits(const char* op, const Tensor& values, const Tensor& x, DType dtype,
              const RankOptions& options) {
    const double atol = options.atol.value_or(0);
    const double size = static_cast<double>(std::max(x.size(-2), x.size(-1)));
    const double rtol = options.rtol.value_or(atol > 0 ? 0 : epsilon_of(dtype) * size);
    if (!(atol >= 0) || !(rtol >= 0))
        throw ValueError(
            str(op, ": atol and rtol must be at least 0: atol ", atol, ", rtol ", rtol));
    return maximum(mul(amax(values, -1, true), rtol),
                   full({}, atol, {.dtype = f64, .device = x.device()}));
}

// Returns the pseudoinverse without a gradient.
Tensor pseudoinverse_values(const char* op, const Tensor& x, DType dtype,
                            const RankOptions& options) {
    const NoGrad no_grad;
    const std::int64_t m = x.size(-2), n = x.size(-1);
    if (m == 0 || n == 0 || x.numel() == 0)
        return zeros(with_sizes(batch_shape(x), {n, m}), {.dtype = f64, .device = x.device()});
    Tensor left, values, right;
    if (options.hermitian) {
        const auto [l, v] = eigenvectors_of(op, x, false);
        left = v, values = l, right = transposed(v);
    } else {
        const Svd y = svd_of(op, x, false);
        left = y.U, values = y.S, right = y.Vh;
    }
    const Tensor size = abs(values);
    const Tensor is_zero = le(size, limits(op, size, x, dtype, options));
    const Tensor inverse = masked_fill(reciprocal(masked_fill(values, is_zero, 1)), is_zero, 0);
    return matmul(mul(transposed(right), unsqueeze(inverse, -2)), transposed(left));
}

Tensor pseudoinverse_of(const char* op, const Tensor& x, DType dtype, const RankOptions& options) {
    const Tensor y = pseudoinverse_values(op, x, dtype, options);
    return record(op, y, {x}, [x = saved(x), y = saved(y)](const Grads& dy, Needs) -> Grads {
        const Tensor a = x, p = y, pt = transposed(p), g = transposed(dy[0]);
        if (a.size(-2) <= a.size(-1)) {
            const Tensor k = matmul(g, p), kpt = matmul(k, pt);
            const Tensor inner = matmul(matmul(pt, p), sub(g, matmul(k, a)));
            return {add(sub(sub(kpt, transposed(matmul(p, k))), matmul(matmul(a, p), kpt)), inner)};
        }
        const Tensor k = matmul(p, g), ptk = matmul(pt, k);
        const Tensor inner = matmul(matmul(sub(g, matmul(a, k)), p), pt);
        return {add(sub(sub(ptk, transposed(matmul(k, p))), matmul(matmul(ptk, p), a)), inner)};
    });
}

Tensor rank_of(const char* op, const Tensor& values, const Tensor& x, DType dtype,
               const RankOptions& options) {
    const NoGrad no_grad;
    if (values.numel() == 0) return zeros(batch_shape(x), {.dtype = i64, .device = x.device()});
    return sum(to(gt(values, limits(op, values, x, dtype, options)), i64), -1);
}

}  // namespace

Tensor matrix_rank(const Tensor& x, const RankOptions& options) {
    const profiler::OpScope scope("matrix_rank");
    const NoGrad no_grad;
    const Tensor a =
        options.hermitian ? square_matrices("matrix_rank", x) : matrices("matrix_rank", x);
    const Tensor values = options.hermitian ? abs(eigenvalues_of("matrix_rank", a, false))
                                            : singular_values_of("matrix_rank", a);
    return rank_of("matrix_rank", values, a, x.dtype(), options);
}

Tensor pinv(const Tensor& x, const RankOptions& options) {
    const profiler::OpScope scope("pinv");
    const Tensor a = options.hermitian ? square_matrices("pinv", x) : matrices("pinv", x);
    return to(pseudoinverse_of("pinv", a, x.dtype(), options), result_dtype(x));
}

LeastSquares lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond) {
    const profiler::OpScope scope("lstsq");
    check_device("lstsq", {&a, &b});
    const Tensor matrix = matrices("lstsq", a, "a");
    check_same_dtype("lstsq", a, b);
    const Shape rows(std::span<const std::int64_t>(a.shape().begin(), a.shape().end() - 1));
    const bool is_vector = b.dim() == 1 || (b.dim() == a.dim() - 1 && b.shape() == rows);
    const Tensor right = is_vector ? unsqueeze(to(b, f64), -1) : matrices("lstsq", b, "b");
    if (right.size(-2) != matrix.size(-2))
        throw ShapeError(str("lstsq: a must be [..., m, n] and b [..., m, k] or [..., m]: a is ",
                             a.shape(), ", b is ", b.shape()));
    broadcast_shapes("lstsq", batch_shape(matrix), batch_shape(right));
    const RankOptions options = {.atol = {}, .rtol = rcond};
    LeastSquares y;
    const Tensor x = matmul(pseudoinverse_of("lstsq", matrix, a.dtype(), options), right);
    {
        const NoGrad no_grad;
        y.singular_values = singular_values_of("lstsq", matrix.detach());
        y.rank = rank_of("lstsq", y.singular_values, matrix, a.dtype(), options);
    }
    const DType dtype = result_dtype(a);
    const std::int64_t m = a.size(-2), n = a.size(-1);
    bool has_residuals = m > n;
    if (has_residuals && !a.device().is_meta())
        for (const double rank : y.rank.to_vector())
            has_residuals = has_residuals && rank == static_cast<double>(n);
    y.residuals = has_residuals ? to(sum(square(sub(matmul(matrix, x), right)), -2), dtype)
                                : Tensor::empty({0}, {.dtype = dtype, .device = a.device()});
    y.solution = to(is_vector ? squeeze(x, -1) : x, dtype);
    y.singular_values = to(y.singular_values, dtype);
    return y;
}

}  // namespace axle::linalg
