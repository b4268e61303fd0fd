// Tests properties of linear algebra that the op cases do not cover.
#include "core/linalg.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle::linalg {
namespace {

using tests::expect_close;
using tests::expect_error;

Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }

// Expects that the factors of x have orthonormal columns and rows, that their product is x, and
// that the singular values are in descending order and equal to those of svdvals().
void expect_svd(const Tensor& x, bool full) {
    const auto [u, s, vh] = linalg::svd(x, full);
    const std::int64_t k = s.size(-1);
    const double scale = std::max(max(abs(x)).item(), 1e-300);
    expect_close(matmul(transposed(u), u), eye(u.size(-1), {f64}), 1e-12);
    expect_close(matmul(vh, transposed(vh)), eye(vh.size(-2), {f64}), 1e-12);
    const Tensor product = matmul(mul(narrow(u, -1, 0, k), s), narrow(vh, -2, 0, k));
    expect_close(div(product, scale), div(x, scale), 1e-12);
    for (std::int64_t i = 1; i < k; ++i) EXPECT_GE(s[i - 1].item(), s[i].item());
    expect_close(linalg::svdvals(x), s, 1e-12);
}

TEST(Svd, HasOrthonormalFactorsForMatricesOfDifferentRanksAndScales) {
    manual_seed(2);
    for (const bool full : {true, false}) {
        SCOPED_TRACE(full);
        for (const Shape& shape : {Shape{60, 40}, Shape{40, 60}, Shape{50, 50}})
            expect_svd(randn(shape, {f64}), full);
        expect_svd(matmul(randn({30, 4}, {f64}), randn({4, 20}, {f64})), full);
        expect_svd(zeros({5, 3}, {f64}), full);
        expect_svd(eye(6, {f64}), full);
        expect_svd(mul(randn({8, 8}, {f64}), 1e200), full);
        expect_svd(mul(randn({8, 5}, {f64}), 1e-200), full);
    }
}

TEST(Svd, ComputesTheSmallestSingularValueOfIllConditionedMatrices) {
    // The singular values of a matrix with orthogonal columns are the norms of the columns.
    const Tensor x = tensor({1.0, 1e-9, 1.0, -1e-9}, {2, 2}, {.dtype = f64});
    const Tensor s = linalg::svdvals(x);
    EXPECT_NEAR(s[0].item(), std::sqrt(2.0), 1e-15);
    EXPECT_NEAR(s[1].item() / (std::sqrt(2.0) * 1e-9), 1, 1e-12);
}

TEST(LinearAlgebra, InvertsEachMatrixOfABatchAndComputesItsSingularValues) {
    manual_seed(3);
    const Tensor x = randn({200, 9, 9}, {f64}), y = linalg::inv(x);
    for (const std::int64_t i : {0, 77, 199}) {
        expect_close(y[i], linalg::inv(x[i]), 1e-12);
        expect_close(linalg::svdvals(x)[i], linalg::svdvals(x[i]), 1e-12);
    }
    expect_close(matmul(x, y), expand(eye(9, {f64}), {200, 9, 9}), 1e-8);
}

TEST(Qr, HasNoGradientWithoutQAndForCompleteFactorsOfTallMatrices) {
    const Tensor x = ones({3, 2}).set_requires_grad();
    for (const linalg::QrMode mode : {linalg::QrMode::r, linalg::QrMode::complete})
        expect_error<UsageError>({"qr: has no gradient"},
                                 [&] { sum(linalg::qr(x, mode).second).backward(); });
}

TEST(Lstsq, ReturnsResidualsOnlyForMatricesOfFullRank) {
    manual_seed(4);
    const Tensor a = randn({5, 2}), b = randn({5, 3});
    EXPECT_EQ(linalg::lstsq(a, b).residuals.shape(), Shape({3}));
    const Tensor deficient = cat({narrow(a, 1, 0, 1), narrow(a, 1, 0, 1)}, 1);
    const linalg::LeastSquares y = linalg::lstsq(deficient, b);
    EXPECT_EQ(y.residuals.shape(), Shape({0}));
    EXPECT_EQ(y.rank.item_int(), 1);
    // The solution with the smallest norm has equal coefficients.
    expect_close(y.solution[0], y.solution[1], 1e-6);
}

}  // namespace
}  // namespace axle::linalg
