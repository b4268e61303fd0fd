// Singular value decompositions by one-sided Jacobi rotations: the columns of W = A V are rotated
// until they are orthogonal. Then W = U diag(s). The initial V consists of the eigenvectors of A^T
// A, so that few rotations are needed. The rotations restore the accuracy that the product A^T A
// loses (Drmac and Veselic, 2008, "New Fast and Accurate Jacobi SVD Algorithm"). Eigen's own
// decomposition takes a minute to compile.
#define EIGEN_MPL2_ONLY
#define EIGEN_DONT_PARALLELIZE

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <Eigen/Core>

#include "core/ops/linalg/host.h"

namespace axle::linalg::host {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic>;
using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowsMap = Eigen::Map<Rows>;
using ConstRowsMap = Eigen::Map<const Rows>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int kMaxSweeps = 40;

// Replaces columns i and j of x by their rotation.
void rotate(Matrix& x, std::int64_t i, std::int64_t j, double cosine, double sine) {
    double *a = x.col(i).data(), *b = x.col(j).data();
    for (std::int64_t k = 0; k < x.rows(); ++k) {
        const double left = a[k], right = b[k];
        a[k] = cosine * left - sine * right;
        b[k] = sine * left + cosine * right;
    }
}

// Rotates pairs of columns of w, and the same columns of v, until the columns of w are orthogonal,
// but at most kMaxSweeps times.
void orthogonalize(Matrix& w, Matrix& v) {
    const double tolerance = kEpsilon * std::max(4.0, std::sqrt(static_cast<double>(w.rows())));
    bool rotated = true;
    for (int sweep = 0; rotated && sweep < kMaxSweeps; ++sweep) {
        rotated = false;
        for (std::int64_t i = 0; i < w.cols(); ++i)
            for (std::int64_t j = i + 1; j < w.cols(); ++j) {
                const double product = w.col(i).dot(w.col(j));
                const double a = w.col(i).squaredNorm(), b = w.col(j).squaredNorm();
                if (!(std::abs(product) > tolerance * std::sqrt(a) * std::sqrt(b))) continue;
                rotated = true;
                const double zeta = (b - a) / (2 * product);
                const double tangent =
                    std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
                const double cosine = 1 / std::hypot(1.0, tangent);
                rotate(w, i, j, cosine, cosine * tangent);
                rotate(v, i, j, cosine, cosine * tangent);
            }
    }
}

// Replaces the columns of u [m, p] from index `first` by unit vectors that are orthogonal to all
// earlier columns.
void complete(Matrix& u, std::int64_t first) {
    if (first == u.cols()) return;
    if (first == 0) {
        u.setIdentity();
        return;
    }
    const std::int64_t m = u.rows();
    const Rows known = u.leftCols(first);
    Rows q(m, m), r(m, first);
    qr(m, first, known.data(), true, q.data(), r.data());
    u.rightCols(u.cols() - first) = q.middleCols(first, u.cols() - first);
}

// Computes a [m, n] = u diag(s) v^T for m >= n. u has n or m columns, or is null if only s and v
// are needed. Returns false if the eigenvectors of a^T a are not found.
bool decompose(const Matrix& a, Matrix* u, double* s, Matrix& v) {
    const std::int64_t m = a.rows(), n = a.cols();
    const double scale = a.cwiseAbs().maxCoeff();
    Matrix w = scale > 0 ? Matrix(a / scale) : a;
    Rows q;
    if (m > n) {
        const Rows rows = w;
        Rows r(n, n);
        q.resize(m, n);
        qr(m, n, rows.data(), false, u == nullptr ? nullptr : q.data(), r.data());
        w = r;
    }
    const Rows squares = w.transpose() * w;
    Rows vectors(n, n);
    std::vector<double> values(static_cast<std::size_t>(n));
    if (!eigh(n, squares.data(), false, values.data(), vectors.data())) return false;
    v = vectors.rowwise().reverse();
    w = w * v;
    orthogonalize(w, v);
    std::vector<double> norms(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) norms[static_cast<std::size_t>(i)] = w.col(i).norm();
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
        return norms[static_cast<std::size_t>(i)] > norms[static_cast<std::size_t>(j)];
    });
    const Matrix unordered = v;
    Matrix unit = Matrix::Zero(n, n);
    std::int64_t rank = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t from = order[static_cast<std::size_t>(i)];
        const double norm = norms[static_cast<std::size_t>(from)];
        s[i] = norm * scale;
        v.col(i) = unordered.col(from);
        if (norm == 0) continue;
        unit.col(i) = w.col(from) / norm;
        ++rank;
    }
    if (u == nullptr) return true;
    if (m > n)
        u->leftCols(n) = q * unit;
    else
        u->leftCols(n) = unit;
    complete(*u, rank);
    return true;
}

}  // namespace

bool svd(std::int64_t m, std::int64_t n, const double* data, bool full, double* u, double* s,
         double* vh) {
    const ConstRowsMap a(data, m, n);
    if (!a.allFinite()) return false;
    const bool is_wide = m < n;
    const std::int64_t larger = std::max(m, n), smaller = std::min(m, n);
    Matrix left(larger, full ? larger : smaller), right;
    const bool is_done = decompose(is_wide ? Matrix(a.transpose()) : Matrix(a),
                                   u == nullptr ? nullptr : &left, s, right);
    if (!is_done || u == nullptr) return is_done;
    // A wide matrix was transposed, which exchanges the singular vectors.
    RowsMap(u, m, is_wide ? smaller : left.cols()) = is_wide ? right : left;
    RowsMap(vh, is_wide ? left.cols() : smaller, n) =
        is_wide ? Matrix(left.transpose()) : Matrix(right.transpose());
    return true;
}

}  // namespace axle::linalg::host
