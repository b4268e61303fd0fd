// Triangular and orthogonal factors, solutions of equations, determinants, and the exponential.
#define EIGEN_MPL2_ONLY
#define EIGEN_DONT_PARALLELIZE

#include <algorithm>
#include <cmath>

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <Eigen/QR>

#include "core/ops/linalg/host.h"

namespace axle::linalg::host {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic>;
using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowsMap = Eigen::Map<Rows>;
using ConstRowsMap = Eigen::Map<const Rows>;
using Factors = Eigen::PartialPivLU<Matrix>;

// The coefficients of the Pade approximant of degree [13/13] of e^x, and the largest 1-norm for
// which its error is below the rounding of f64. See Higham, 2005, "The Scaling and Squaring Method
// for the Matrix Exponential Revisited".
constexpr double kPade[] = {64764752532480000.,
                            32382376266240000.,
                            7771770303897600.,
                            1187353796428800.,
                            129060195264000.,
                            10559470521600.,
                            670442572800.,
                            33522128640.,
                            1323241920.,
                            40840800.,
                            960960.,
                            16380.,
                            182.,
                            1.};
constexpr double kLargestNorm = 5.371920351148152;

}  // namespace

std::int64_t cholesky(std::int64_t n, double* data) {
    RowsMap a(data, n, n);
    // The factor is computed row by row, so that the order of the first minor that is not positive
    // is known.
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < i; ++j)
            a(i, j) = (a(i, j) - a.row(i).head(j).dot(a.row(j).head(j))) / a(j, j);
        const double square = a(i, i) - a.row(i).head(i).squaredNorm();
        if (!(square > 0)) return i + 1;
        a(i, i) = std::sqrt(square);
        a.row(i).tail(n - i - 1).setZero();
    }
    return 0;
}

std::int64_t solve(std::int64_t n, std::int64_t k, const double* a, double* b) {
    const Factors lu(ConstRowsMap(a, n, n));
    for (std::int64_t i = 0; i < n; ++i)
        if (lu.matrixLU()(i, i) == 0) return i + 1;
    RowsMap x(b, n, k);
    x = lu.solve(Matrix(x));
    return 0;
}

void solve_triangular(std::int64_t n, std::int64_t k, const double* data, bool upper, bool unit,
                      double* b) {
    const ConstRowsMap a(data, n, n);
    RowsMap x(b, n, k);
    if (upper && unit)
        a.triangularView<Eigen::UnitUpper>().solveInPlace(x);
    else if (upper)
        a.triangularView<Eigen::Upper>().solveInPlace(x);
    else if (unit)
        a.triangularView<Eigen::UnitLower>().solveInPlace(x);
    else
        a.triangularView<Eigen::Lower>().solveInPlace(x);
}

void determinant(std::int64_t n, const double* a, double& sign, double& logarithm, double& value) {
    const Factors lu(ConstRowsMap(a, n, n));
    sign = static_cast<double>(lu.permutationP().determinant());
    value = sign;
    logarithm = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const double pivot = lu.matrixLU()(i, i);
        value *= pivot;
        logarithm += std::log(std::abs(pivot));
        sign *= pivot > 0 ? 1 : pivot < 0 ? -1 : pivot;  // 0 and NaN remain
    }
}

void qr(std::int64_t m, std::int64_t n, const double* a, bool complete, double* q, double* r) {
    const std::int64_t columns = complete ? m : std::min(m, n);
    const Eigen::HouseholderQR<Matrix> factors(ConstRowsMap(a, m, n));
    RowsMap(r, columns, n) = factors.matrixQR().topRows(columns).triangularView<Eigen::Upper>();
    if (q != nullptr) {
        const Matrix identity = Matrix::Identity(m, columns);
        RowsMap(q, m, columns) = factors.householderQ() * identity;
    }
}

void reflectors(std::int64_t m, std::int64_t n, double* a, double* tau) {
    const Eigen::HouseholderQR<Matrix> factors(ConstRowsMap(a, m, n));
    RowsMap(a, m, n) = factors.matrixQR();
    Eigen::Map<Eigen::VectorXd>(tau, std::min(m, n)) = factors.hCoeffs();
}

bool exponential(std::int64_t n, double* data) {
    RowsMap result(data, n, n);
    Matrix a = result;
    const double norm = a.cwiseAbs().colwise().sum().maxCoeff();
    if (!std::isfinite(norm)) return false;
    int squarings = 0;
    if (norm > kLargestNorm) {
        squarings = std::max(0, static_cast<int>(std::ceil(std::log2(norm / kLargestNorm))));
        a *= std::ldexp(1.0, -squarings);
    }
    const Matrix identity = Matrix::Identity(n, n);
    const Matrix a2 = a * a, a4 = a2 * a2, a6 = a4 * a2;
    Matrix sum = kPade[13] * a6 + kPade[11] * a4 + kPade[9] * a2;
    sum = a6 * sum + kPade[7] * a6 + kPade[5] * a4 + kPade[3] * a2 + kPade[1] * identity;
    const Matrix odd = a * sum;
    sum = kPade[12] * a6 + kPade[10] * a4 + kPade[8] * a2;
    const Matrix even =
        a6 * sum + kPade[6] * a6 + kPade[4] * a4 + kPade[2] * a2 + kPade[0] * identity;
    Matrix y = Factors(even - odd).solve(even + odd);
    for (int i = 0; i < squarings; ++i) y = Matrix(y * y);
    result = y;
    return true;
}

}  // namespace axle::linalg::host
