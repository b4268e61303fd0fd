// Eigenvalues and eigenvectors of symmetric matrices.
#define EIGEN_MPL2_ONLY
#define EIGEN_DONT_PARALLELIZE

#include <Eigen/Eigenvalues>

#include "core/ops/linalg/host.h"

namespace axle::linalg::host {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic>;
using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowsMap = Eigen::Map<Rows>;
using ConstRowsMap = Eigen::Map<const Rows>;

}  // namespace

bool eigh(std::int64_t n, const double* data, bool upper, double* values, double* vectors) {
    Matrix a = ConstRowsMap(data, n, n);
    if (upper) a.transposeInPlace();  // the solver reads the lower triangle
    if (!a.triangularView<Eigen::Lower>().toDenseMatrix().allFinite()) return false;
    const Eigen::SelfAdjointEigenSolver<Matrix> result(
        a, vectors == nullptr ? Eigen::EigenvaluesOnly : Eigen::ComputeEigenvectors);
    if (result.info() != Eigen::Success) return false;
    Eigen::Map<Eigen::VectorXd>(values, n) = result.eigenvalues();
    if (vectors != nullptr) RowsMap(vectors, n, n) = result.eigenvectors();
    return true;
}

}  // namespace axle::linalg::host
