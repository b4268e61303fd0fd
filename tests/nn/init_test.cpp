// Tests the initializers of nn/init.h. layers/layers_test.cpp also tests some of them.
#include "nn/init.h"

#include <cmath>

#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
namespace init = nn::init;

double deviation(const Tensor& t) { return std::sqrt(var(t.detach()).item()); }

TEST(CalculateGain, HasTheValuesOfPyTorch) {
    using init::Nonlinearity;
    EXPECT_EQ(init::calculate_gain(Nonlinearity::linear), 1);
    EXPECT_EQ(init::calculate_gain(Nonlinearity::sigmoid), 1);
    EXPECT_EQ(init::calculate_gain(Nonlinearity::tanh), 5.0 / 3);
    EXPECT_EQ(init::calculate_gain(Nonlinearity::relu), std::sqrt(2.0));
    EXPECT_EQ(init::calculate_gain(Nonlinearity::leaky_relu), std::sqrt(2 / 1.0001));
    EXPECT_EQ(init::calculate_gain(Nonlinearity::leaky_relu, 3), std::sqrt(0.2));
    EXPECT_EQ(init::calculate_gain(Nonlinearity::selu), 0.75);
}

TEST(Kaiming, UsesTheFanAndTheNonlinearity) {
    manual_seed(1);
    Tensor t = init::parameter({300, 100, 2});  // fan_in 200, fan_out 600
    init::kaiming_normal_(t, 0, init::Fan::out, init::Nonlinearity::tanh);
    EXPECT_NEAR(deviation(t), 5.0 / 3 / std::sqrt(600.0), 1e-3);
    init::kaiming_normal_(t);
    EXPECT_NEAR(deviation(t), std::sqrt(2 / 200.0), 1e-3);
    init::kaiming_uniform_(t, 0, init::Fan::out, init::Nonlinearity::linear);
    EXPECT_NEAR(deviation(t), 1 / std::sqrt(600.0), 1e-3);
    EXPECT_LE(t.abs().max().item(), std::sqrt(3 / 600.0) * (1 + 1e-6));
}

TEST(XavierNormal, HasTheDocumentedVariance) {
    manual_seed(2);
    Tensor t = init::parameter({400, 250});
    init::xavier_normal_(t, 2);
    EXPECT_NEAR(deviation(t), 2 * std::sqrt(2 / 650.0), 1e-3);
    EXPECT_NEAR(mean(t.detach()).item(), 0, 1e-3);
}

TEST(TruncNormal, HasTheBoundsMeanAndDeviationOfATruncatedDistribution) {
    manual_seed(3);
    Tensor t = init::parameter({200000});
    init::trunc_normal_(t, 1, 2, 0, 3);
    EXPECT_GE(t.min().item(), 0);
    EXPECT_LE(t.max().item(), 3);
    // With the bounds l = -1/2 and h = 1 in standard deviations, the mean is 1 + 2 (phi(l) -
    // phi(h)) / (Phi(h) - Phi(l)).
    const double density = std::exp(-0.125) - std::exp(-0.5), pi = std::acos(-1.0);
    const double mass = (std::erf(1 / std::sqrt(2.0)) + std::erf(0.5 / std::sqrt(2.0))) / 2;
    EXPECT_NEAR(mean(t.detach()).item(), 1 + 2 * density / std::sqrt(2 * pi) / mass, 0.01);
    EXPECT_EQ(t.is_leaf(), true);
    Tensor half = zeros({10000}, {bf16});
    init::trunc_normal_(half);
    EXPECT_NEAR(deviation(half.to(f32)), 0.88, 0.02);
    init::trunc_normal_(t, 5, 0, -1, 1);
    expect_same_bits(t.detach(), ones({200000}));
}

TEST(TruncNormal, RejectsEmptyRangesAndNegativeDeviations) {
    Tensor t = init::parameter({2});
    expect_error<ValueError>({"trunc_normal_: low"}, [&] { init::trunc_normal_(t, 0, 1, 2, 1); });
    expect_error<ValueError>({"trunc_normal_: std"}, [&] { init::trunc_normal_(t, 0, -1); });
}

TEST(InitEye, FillsRectangularMatricesAndRejectsVectors) {
    Tensor t = full({2, 3}, 7.0);
    init::eye_(t);
    expect_same_bits(t, tensor({1.0, 0, 0, 0, 1, 0}, {2, 3}));
    Tensor vector = zeros({3});
    expect_error<ShapeError>({"eye_: ", "[3]"}, [&] { init::eye_(vector); });
}

TEST(InitDirac, PreservesTheChannelsOfEachGroupAndRejectsInvalidGroupsAndShapes) {
    Tensor t = full({4, 2, 3, 3}, 7.0);
    init::dirac_(t);
    const Tensor x = randn({1, 2, 5, 5});
    const Tensor y = conv2d(x, t, {}, {.padding = 1});
    expect_same_bits(y.narrow(1, 0, 2), x);
    expect_same_bits(y.narrow(1, 2, 2), zeros({1, 2, 5, 5}));
    init::dirac_(t, 2);  // output channels 0 and 2 have input channel 0
    EXPECT_EQ(t[0][0][1][1].item(), 1);
    EXPECT_EQ(t[1][1][1][1].item(), 1);
    EXPECT_EQ(t[2][0][1][1].item(), 1);
    EXPECT_EQ(t[3][1][1][1].item(), 1);
    EXPECT_EQ(sum(t).item(), 4);
    expect_error<ValueError>({"dirac_: groups", "3"}, [&] { init::dirac_(t, 3); });
    Tensor matrix = zeros({2, 2});
    expect_error<ShapeError>({"dirac_: "}, [&] { init::dirac_(matrix); });
}

TEST(InitOrthogonal, FillsWithScaledOrthogonalRowsOrColumnsAndRejectsVectors) {
    manual_seed(4);
    for (const Shape& shape :
         {Shape{5, 5}, Shape{3, 7}, Shape{7, 3}, Shape{4, 2, 3}, Shape{1, 1}}) {
        SCOPED_TRACE(str(shape));
        Tensor t = zeros(shape, {f64});
        init::orthogonal_(t, 3);
        const Tensor m = t.flatten(1, -1);
        const Tensor small = m.size(0) > m.size(1) ? matmul(m.t(), m) : matmul(m, m.t());
        Tensor expected = zeros(small.shape(), {f64});
        init::eye_(expected);
        expect_close(small, expected * 9, 1e-13);
    }
    Tensor vector = zeros({3});
    expect_error<ShapeError>({"orthogonal_: ", "[3]"}, [&] { init::orthogonal_(vector); });
}

TEST(InitOrthogonal, IsUniformlyDistributed) {
    manual_seed(5);
    double trace = 0, first = 0;
    for (int i = 0; i < 400; ++i) {
        Tensor t = zeros({3, 3}, {f64});
        init::orthogonal_(t);
        trace += sum(t[0][0] + t[1][1] + t[2][2]).item();
        first += square(t[0][0]).item();
    }
    EXPECT_NEAR(trace / 400, 0, 0.15);  // the variance of the trace is 1
    EXPECT_NEAR(first / 400, 1.0 / 3, 0.05);
}

TEST(InitSparse, SetsAShareOfEachColumnToZeroAndRejectsInvalidSharesAndShapes) {
    manual_seed(6);
    Tensor t = init::parameter({50, 40});
    init::sparse_(t, 0.31, 0.5);
    expect_same_bits(sum(eq(t.detach(), 0), {0}), full({40}, 16));  // 16 is 15.5 rounded up
    const Tensor kept = t.detach().index({ne(t.detach(), 0)});
    EXPECT_NEAR(deviation(kept), 0.5, 0.05);
    EXPECT_GT(deviation(sum(eq(t.detach(), 0), {1}).to(f32)), 0);  // the rows differ
    Tensor vector = zeros({3});
    expect_error<ShapeError>({"sparse_: "}, [&] { init::sparse_(vector, 0.5); });
    expect_error<ValueError>({"sparse_: sparsity"}, [&] { init::sparse_(t, 2); });
}

TEST(InitSparse, RejectsANegativeDeviation) {
    Tensor t = init::parameter({5, 4}), none = zeros({0, 4});
    expect_error<ValueError>({"sparse_: std must be at least 0: -1"},
                             [&] { init::sparse_(t, 0.5, -1); });
    expect_error<ValueError>({"sparse_: std must be at least 0: -1"},
                             [&] { init::sparse_(none, 0.5, -1); });
}

TEST(Initializers, RejectAnUndefinedTensor) {
    Tensor none;
    expect_error<UsageError>({"constant_: "}, [&] { init::zeros_(none); });
    expect_error<UsageError>({"uniform_: "}, [&] { init::uniform_(none); });
    expect_error<UsageError>({"normal_: "}, [&] { init::normal_(none); });
    expect_error<UsageError>({"trunc_normal_: "}, [&] { init::trunc_normal_(none); });
    expect_error<UsageError>({"kaiming_uniform_: "}, [&] { init::kaiming_uniform_(none); });
    expect_error<UsageError>({"kaiming_normal_: "}, [&] { init::kaiming_normal_(none); });
    expect_error<UsageError>({"xavier_uniform_: "}, [&] { init::xavier_uniform_(none); });
    expect_error<UsageError>({"xavier_normal_: "}, [&] { init::xavier_normal_(none); });
    expect_error<UsageError>({"eye_: "}, [&] { init::eye_(none); });
    expect_error<UsageError>({"dirac_: "}, [&] { init::dirac_(none); });
    expect_error<UsageError>({"orthogonal_: "}, [&] { init::orthogonal_(none); });
    expect_error<UsageError>({"sparse_: "}, [&] { init::sparse_(none, 0.5); });
}

TEST(Initializers, SkipTensorsOnTheMetaDevice) {
    const init::EmptyWeights empty;
    Tensor t = init::parameter({3, 3});
    init::orthogonal_(t), init::eye_(t), init::sparse_(t, 0.5), init::trunc_normal_(t);
    EXPECT_TRUE(t.device().is_meta());
}

TEST(InitEye, FillsDeferredWeights) {
    const init::DeferredWeights deferred;
    Tensor t = init::parameter({2, 2});
    init::eye_(t);
    expect_same_bits(t.detach(), tensor({1.0, 0, 0, 1}, {2, 2}));
}

}  // namespace
}  // namespace axle
