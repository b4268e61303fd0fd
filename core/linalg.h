// Linear algebra: decompositions, solutions of linear equations, determinants, functions and norms
// of matrices, with the names of torch.linalg. core/ops.h states the rules of all ops.
//
// Matrices are the last two dimensions of x [..., m, n]; the other dimensions are a batch. Ops on
// matrices compute in f64 and round results and gradients to the dtype of x; under autocast, the
// results of 16-bit operands are f32. Operands on a GPU are copied to the host, where the
// factorization runs, and the results are copied back; so ops that factorize wait for the GPU.
// Programs that do not call these ops do not contain their code.
//
// Ops on matrices throw DTypeError unless the operands are floating and have one dtype. They throw
// ShapeError for operands with fewer than two dimensions, and for matrices that must be square but
// are not. Ops that invert a matrix or solve an equation throw LinAlgError for a singular matrix,
// unless a comment states otherwise. The message of a LinAlgError names the op and, in a batch, the
// element.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/ops.h"

namespace axle::linalg {

// Thrown if a matrix is singular or not positive-definite, or if a decomposition does not converge.
struct LinAlgError : Error {
    using Error::Error;
};

// --- equations and triangular factors (linalg/solving.cpp)
// Returns the lower (or upper) Cholesky factor of symmetric positive-definite matrices. Only this
// triangle of x is read. Throws LinAlgError if a matrix is not positive-definite.
Tensor cholesky(const Tensor& x, bool upper = false);
// Returns the solution X of A X = B for square A [..., n, n] and B [..., n, k]. If left is false,
// returns the solution of X A = B for B [..., k, n]. Batch dimensions broadcast. B is a vector
// [..., n] if it is 1-d or has the shape of A without its last dimension; throws ShapeError for a
// vector if left is false.
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
// Returns the solution of solve() for triangular A and B that is not a vector. Only the upper (or
// lower) triangle of A is read. If unitriangular is true, the diagonal of A counts as 1. A singular
// A throws no error; results can be infinite or NaN.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true,
                        bool unitriangular = false);
Tensor inv(const Tensor& x);  // the inverse
// Returns the determinant. The gradient is also correct if the matrix is singular.
Tensor det(const Tensor& x);
// Returns the sign of the determinant and ln |determinant|: 0 and -inf for a singular matrix. The
// backward pass throws LinAlgError for a singular matrix.
std::pair<Tensor, Tensor> slogdet(const Tensor& x);

// --- decompositions (linalg/decompositions.cpp). Gradients of vectors are finite only if the
// singular values or eigenvalues are distinct. They are correct only for functions that do not
// depend on the signs of the vectors.
enum class QrMode : std::uint8_t { reduced, complete, r };
// Returns Q and R with x = Q R, where the columns of Q are orthonormal and R is upper triangular. Q
// is [..., m, k] and R is [..., k, n], where k is min(m, n), or m in the mode `complete`. In the
// mode `r`, Q is empty ([0]). The backward pass throws UsageError in the mode `r`, and in the mode
// `complete` if m is above n.
std::pair<Tensor, Tensor> qr(const Tensor& x, QrMode mode = QrMode::reduced);
// Returns the first n columns of the product of the reflections I - tau[i] v[i] v[i]^T. v[i] is
// column i of x [..., m, n] below the diagonal, and has 1 on the diagonal. tau is [..., k] with k
// <= n <= m.
Tensor householder_product(const Tensor& x, const Tensor& tau);
// Returns the reflections of Q for householder_product(), with R in the upper triangle, [..., m,
// n], and tau [..., min(m, n)]. Has no gradient.
std::pair<Tensor, Tensor> geqrf(const Tensor& x);
// The result of svd(): x = U diag(S) Vh.
struct Svd {
    Tensor U;   // [..., m, m], or [..., m, k] unless full_matrices, with k = min(m, n)
    Tensor S;   // [..., k], in descending order
    Tensor Vh;  // [..., n, n], or [..., k, n] unless full_matrices
};
// Throw LinAlgError if an element is not finite or the algorithm does not converge. The backward
// pass ignores gradients of the columns of U and the rows of Vh after the first k.
Svd svd(const Tensor& x, bool full_matrices = true);
Tensor svdvals(const Tensor& x);  // only the singular values
// Return the eigenvalues [..., n] of symmetric matrices in ascending order. eigh() also returns the
// eigenvectors as columns [..., n, n]. Only the lower (or upper) triangle is read. Throw
// LinAlgError as svd() does.
std::pair<Tensor, Tensor> eigh(const Tensor& x, bool upper = false);
Tensor eigvalsh(const Tensor& x, bool upper = false);

// --- ranks and least squares (linalg/least_squares.cpp)
// Ops throw ValueError for tolerances that are negative or NaN, unless x has no elements.
struct RankOptions {
    // Singular values up to max(atol, rtol * the largest singular value) count as 0. The default of
    // atol is 0. The default of rtol is the epsilon of the dtype (for 16-bit dtypes, of f32) times
    // max(m, n), or 0 if atol is positive.
    std::optional<double> atol = {}, rtol = {};
    bool hermitian = false;  // the matrices are symmetric: only the lower triangle is read
};
// Return the ranks [...] (i64, without a gradient) and the pseudoinverses [..., n, m] of x. Throw
// LinAlgError as svd() does.
Tensor matrix_rank(const Tensor& x, const RankOptions& options = {});
Tensor pinv(const Tensor& x, const RankOptions& options = {});
// The result of lstsq(), with the same values as PyTorch's driver gelsd.
struct LeastSquares {
    Tensor solution;  // [..., n, k], or [..., n] for a vector
    // [..., k] (k is 1 for a vector), sums of squares; [0] unless m > n and all A have the rank n.
    // On the meta device, the rank of A is taken to be n if m > n.
    Tensor residuals;
    Tensor rank;             // [...], i64
    Tensor singular_values;  // of A, [..., min(m, n)]; without gradient
};
// Returns the X of the least norm that minimizes the norm of A X - B. A is [..., m, n]; B is [...,
// m, k], or vectors [..., m] as in solve(). rcond is the rtol of pinv(); it decides the rank.
// Throws the errors of pinv().
LeastSquares lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {});

// --- functions of matrices (linalg/functions.cpp)
// Returns the matrix exponential. Throws LinAlgError if an element is not finite.
Tensor matrix_exp(const Tensor& x);
// Returns the inverse of x as an operand of tensordot(). The first `ind` dimensions of x are the
// rows of a square matrix, and the other dimensions are its columns; the result has the columns
// first. Throws ShapeError unless the matrix is square, and ValueError unless ind is positive.
Tensor tensorinv(const Tensor& x, std::int64_t ind = 2);
// Moves `dims` of A (by default none) to its end, so that A is [b..., n...], where [b...] is the
// shape of B. Returns the X [n...] for which tensordot(A, X, X.dim()) = B. Throws ShapeError unless
// the sizes b... and the sizes n... of A each have the product B.numel(), and LinAlgError if A is
// singular.
Tensor tensorsolve(const Tensor& a, const Tensor& b, const Dims& dims = {});
// Returns the sums of products along dim, after broadcasting. The dtypes are promoted; bool and
// integers give i64.
Tensor vecdot(const Tensor& a, const Tensor& b, std::int64_t dim = -1);
// Returns the powers x^0, x^1, ..., x^(n - 1) of the elements of x [..., k] as [..., k, n]; n is by
// default k. Integers give i64. Throws DTypeError for bool, ShapeError if x is 0-d, and ValueError
// unless n is above 1.
Tensor vander(const Tensor& x, std::optional<std::int64_t> n = {});

// --- norms (linalg/matrix_norms.cpp)
// The Frobenius norm, and the nuclear norm, which is the sum of the singular values.
enum class MatrixNorm : std::uint8_t { fro, nuc };
// Return norms of the matrices in two dimensions. The orders of the second overload are 1 (the
// largest sum of |x| of a column), inf (of a row) and 2 (the largest singular value). Orders -1,
// -inf and -2 are the smallest of these values. `fro` is vector_norm(x, 2, dims, keepdim), which
// does not compute in f64. Throw ValueError for another order, unless dims are two different
// dimensions, and for a negative order if a matrix has no such value, as -1 of a matrix [2, 0].
// `nuc`, 2 and -2 throw LinAlgError as svd() does.
Tensor matrix_norm(const Tensor& x, MatrixNorm ord = MatrixNorm::fro, const Dims& dims = {-2, -1},
                   bool keepdim = false);
Tensor matrix_norm(const Tensor& x, double ord, const Dims& dims = {-2, -1}, bool keepdim = false);
// Returns vector_norm(x, 2, dims) if ord is not given. Otherwise, returns the matrix norm over two
// dims, or the vector norm over one; no dims mean all dimensions of x. Throws ShapeError for other
// numbers of dimensions, and the errors of matrix_norm() and vector_norm().
Tensor norm(const Tensor& x, std::optional<double> ord = {}, const Dims& dims = {},
            bool keepdim = false);
// Return the condition number: the product of the norms matrix_norm(..., p) of x and of its
// inverse. If p is 2 (or -2), this is the largest singular value divided by the smallest (or the
// reverse); then x need not be square, and a singular matrix throws no error.
Tensor cond(const Tensor& x, double p = 2);
Tensor cond(const Tensor& x, MatrixNorm p);

// --- ops of core/ops.h with the defaults of torch.linalg
using axle::matmul;
using axle::matrix_power;
using axle::multi_dot;
using axle::vector_norm;
inline Tensor cross(const Tensor& a, const Tensor& b, std::int64_t dim = -1) {
    return axle::cross(a, b, dim);
}
inline Tensor diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t dim1 = -2,
                       std::int64_t dim2 = -1) {
    return axle::diagonal(x, offset, dim1, dim2);
}

}  // namespace axle::linalg

namespace axle {

using linalg::cholesky;
using linalg::det;
using linalg::geqrf;
using linalg::matrix_exp;
using linalg::qr;
using linalg::slogdet;
inline Tensor inverse(const Tensor& x) { return linalg::inv(x); }
inline Tensor pinverse(const Tensor& x, double rcond = 1e-15) {
    return linalg::pinv(x, {.rtol = rcond});
}

// --- equations, with the names that PyTorch uses outside torch.linalg (linalg/solving.cpp)
// Returns ln(determinant): NaN if the determinant is negative, and -inf for a singular matrix. The
// backward pass throws LinAlgError for a singular matrix.
Tensor logdet(const Tensor& x);
// `factor` is the lower (or upper) Cholesky factor of a matrix A [..., n, n]. cholesky_solve()
// returns the solution X of A X = B [..., n, k], and cholesky_inverse() the inverse of A. A
// singular factor throws no error; results can be infinite or NaN.
Tensor cholesky_solve(const Tensor& b, const Tensor& factor, bool upper = false);
Tensor cholesky_inverse(const Tensor& factor, bool upper = false);
// Returns the solution X of A X = B [..., n, k] for triangular A, and a copy of A that is expanded
// to the batch dimensions of X. If `transpose` is true, solves with the transposed A. `upper`,
// `unitriangular` and singular A are as in solve_triangular().
std::pair<Tensor, Tensor> triangular_solve(const Tensor& b, const Tensor& a, bool upper = true,
                                           bool transpose = false, bool unitriangular = false);

}  // namespace axle
