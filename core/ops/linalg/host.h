// Private to core: factorizations and functions of one matrix in host memory, implemented with
// Eigen. Matrices are row-major f64, one row after another. Eigen is instantiated for f64 only,
// because each further dtype would double the compile time. Results for f32 are rounded.
#pragma once

#include <cstdint>

namespace axle::linalg::host {

// --- factors.cpp
// Replaces the symmetric matrix a [n, n] by its lower Cholesky factor. Only the lower triangle of a
// is read. Returns 0, or the order of the first leading minor that is not positive.
std::int64_t cholesky(std::int64_t n, double* a);
// Replaces b [n, k] by the solution of a x = b. Returns 0, or the position (from 1) of a pivot that
// is 0.
std::int64_t solve(std::int64_t n, std::int64_t k, const double* a, double* b);
// Replaces b [n, k] by the solution of a x = b for a triangular matrix a.
void solve_triangular(std::int64_t n, std::int64_t k, const double* a, bool upper, bool unit,
                      double* b);
// Computes the determinant of a [n, n], its sign (0 for a singular matrix) and ln |determinant|.
void determinant(std::int64_t n, const double* a, double& sign, double& logarithm, double& value);
// Computes the Q [m, columns] and R [columns, n] of a [m, n], where columns is min(m, n), or m if
// `complete` is true. q can be null.
void qr(std::int64_t m, std::int64_t n, const double* a, bool complete, double* q, double* r);
// Replaces a [m, n] by R in its upper triangle and the reflectors of Q below it, whose factors are
// tau [min(m, n)].
void reflectors(std::int64_t m, std::int64_t n, double* a, double* tau);
// Replaces a [n, n] by its exponential. Returns false if an element is not finite.
bool exponential(std::int64_t n, double* a);

// --- singular_values.cpp and eigenvalues.cpp. Return false if an element is not finite or the
// algorithm does not converge.
// Computes the singular values s [min(m, n)] of a [m, n] in descending order. Unless u is null,
// also computes the singular vectors u [m, p] and vh [q, n]. p and q are min(m, n), or m and n if
// `full` is true.
bool svd(std::int64_t m, std::int64_t n, const double* a, bool full, double* u, double* s,
         double* vh);
// Computes the eigenvalues [n] of the symmetric matrix a [n, n] in ascending order. Unless
// `vectors` is null, also computes the eigenvectors as columns [n, n]. Reads the upper or the lower
// triangle.
bool eigh(std::int64_t n, const double* a, bool upper, double* values, double* vectors);

}  // namespace axle::linalg::host
