#include "optim/clip.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using optim::clip_grad_norm_;
using optim::clip_grad_value_;
using tests::expect_error;

Tensor with_grad(const std::vector<double>& grad, DType dtype = f64) {
    const Shape shape = {static_cast<std::int64_t>(grad.size())};
    Tensor param = zeros(shape, {.dtype = dtype, .requires_grad = true});
    param.set_grad(tensor(grad, shape, {.dtype = dtype}));
    return param;
}

TEST(ClipGrad, MatchesPyTorch) {
    const auto golden = tests::golden_json("optim.json");
    ASSERT_EQ(golden["clip"].size(), 12u);
    for (const auto& row : golden["clip"]) {
        std::vector<Tensor> params;
        for (const auto& grad : row["grads"]) params.push_back(with_grad(grad));
        if (row.contains("value")) {
            clip_grad_value_(params, row["value"]);
        } else {
            const double p = row["norm_type"].is_string() ? std::numeric_limits<double>::infinity()
                                                          : row["norm_type"].get<double>();
            const Tensor norm = clip_grad_norm_(params, row["max_norm"], p);
            EXPECT_NEAR(norm.item(), row["total_norm"].get<double>(), 1e-9);
        }
        for (std::size_t i = 0; i < params.size(); ++i) {
            const std::vector<double> now = params[i].grad().to_vector();
            const std::vector<double> expected = row["clipped"][i];
            for (std::size_t k = 0; k < now.size(); ++k) EXPECT_NEAR(now[k], expected[k], 1e-9);
        }
    }
}

TEST(ScaleGrads, MultipliesGradientsByAScalarTensor) {
    const Tensor a = with_grad({3, 4}), none = zeros({2}, {.requires_grad = true});
    optim::scale_grads_({none, a}, tensor({0.5}, Shape{}, {.dtype = f64}));
    EXPECT_EQ(a.grad().to_vector(), std::vector<double>({1.5, 2}));
    optim::scale_grads_({none}, tensor({0.5}, Shape{}, {.dtype = f64}));
}

TEST(ScaleGrads, RejectsAFactorOfInvalidDTypeOrSize) {
    const Tensor a = with_grad({3, 4});
    expect_error<DTypeError>({"scale_grads_: the factor must be float64: it is float32"},
                             [&] { optim::scale_grads_({a}, ones({1})); });
    expect_error<ShapeError>({"scale_grads_: the factor must have one element: it is [2]"},
                             [&] { optim::scale_grads_({a}, ones({2}, {.dtype = f64})); });
    EXPECT_EQ(a.grad().to_vector(), std::vector<double>({3, 4}));
}

TEST(ClipGradNorm, KeepsSmallGradientsUnchanged) {
    const Tensor param = with_grad({0.1, -0.7}, f32);
    const std::vector<double> before = param.grad().to_vector();
    const Tensor norm = clip_grad_norm_({param}, 10);
    EXPECT_EQ(norm.dtype(), f32);
    EXPECT_EQ(norm.dim(), 0);
    EXPECT_EQ(param.grad().to_vector(), before);
}

TEST(ClipGrad, SkipsParametersWithoutGradient) {
    const Tensor none = zeros({2}, {.requires_grad = true});
    const Tensor norm = clip_grad_norm_({none}, 1);
    EXPECT_EQ(norm.item(), 0);
    EXPECT_EQ(norm.dtype(), f32);
    EXPECT_NEAR(clip_grad_norm_({none, with_grad({3, 4})}, 1).item(), 5, 1e-12);
    clip_grad_value_({none}, 1);
    EXPECT_FALSE(none.grad().defined());
}

TEST(ClipGrad, RejectsAnUndefinedParameter) {
    expect_error<UsageError>({"clip_grad_norm_: a parameter is undefined"},
                             [] { clip_grad_norm_({Tensor()}, 1); });
    expect_error<UsageError>({"clip_grad_value_: a parameter is undefined"},
                             [] { clip_grad_value_({Tensor()}, 1); });
}

TEST(ClipGradValue, RejectsANegativeLimit) {
    const Tensor param = with_grad({3, -4});
    expect_error<ValueError>({"clip_grad_value_: clip_value must be 0 or more: -1"},
                             [&] { clip_grad_value_({param}, -1); });
    EXPECT_EQ(param.grad().to_vector(), (std::vector<double>{3, -4}));
}

TEST(ClipGradNorm, ScalesStridedGradients) {
    Tensor param = zeros({3, 2}, {.dtype = f64, .requires_grad = true});
    const Tensor grad = tensor({3, 0, 0, 0, 0, 4}, {2, 3}, {.dtype = f64}).transpose(0, 1);
    param.set_grad(grad);
    EXPECT_NEAR(clip_grad_norm_({param}, 2.5).item(), 5, 1e-12);
    const std::vector<double> now = param.grad().to_vector();
    EXPECT_NEAR(now[0], 1.5, 1e-6);
    EXPECT_NEAR(now[5], 2, 1e-6);
    EXPECT_EQ(grad.to_vector(), now);
}

TEST(ClipGradNorm, RejectsNonFiniteNormsOnRequestAndAZeroNormType) {
    const Tensor param = with_grad({1, std::numeric_limits<double>::infinity()});
    expect_error<ValueError>(
        {"clip_grad_norm_: the norm of the gradients is not finite: order 2, norm inf"},
        [&] { clip_grad_norm_({param}, 1, 2, true); });
    EXPECT_EQ(param.grad().to_vector()[0], 1);
    EXPECT_TRUE(std::isinf(clip_grad_norm_({param}, 1).item()));
    EXPECT_EQ(param.grad().to_vector()[0], 0);
    EXPECT_TRUE(std::isnan(param.grad().to_vector()[1]));
    expect_error<ValueError>(
        {"clip_grad_norm_: norm_type must be positive infinity or a finite number other than 0: 0"},
        [&] { clip_grad_norm_({param}, 1, 0); });
}

TEST(ClipGradNorm, EqualsNormAndScalingInTwoSteps) {
    const Tensor a = with_grad({3, 4}), b = with_grad({3, 4});
    const Tensor norm = optim::get_total_norm({a});
    EXPECT_EQ(norm.dtype(), f64);
    optim::clip_grads_with_norm_({a}, 1, norm);
    clip_grad_norm_({b}, 1);
    EXPECT_EQ(a.grad().to_vector(), b.grad().to_vector());
}

}  // namespace
}  // namespace axle
