// Tests the detection of NaN in backward passes.
#include <cmath>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

// Runs f and returns the message of the NumericsError that it throws, or an empty string.
template <class F>
std::string numerics_error(F f) {
    try {
        f();
    } catch (const NumericsError& error) {
        return error.what();
    }
    return "";
}

// Returns a tensor whose backward pass produces NaN: the gradient of sqrt at 0 is infinite, and the
// gradient rule of mul computes 0 * infinity.
Tensor nan_gradient(const Tensor& x) { return sum(sqrt(mul(x, 0.0))); }

TEST(DetectAnomaly, ReportsOpThatReturnsNanGradient) {
    const Tensor x = ones({2}, {.requires_grad = true});
    const autograd::DetectAnomaly guard;
    const std::string error = numerics_error([&] { nan_gradient(x).backward(); });
    EXPECT_EQ(error, "backward: mul returned NaN in the gradient of its operand 0 of shape [2]");
    EXPECT_FALSE(x.grad().defined());
    const Tensor y = nan_gradient(x);
    EXPECT_NE(numerics_error([&] { autograd::grad({y}, {x}); }), "");
}

TEST(DetectAnomaly, ReportsFirstForwardOpThatProducedNan) {
    const Tensor x = tensor({1.0, -1.0}, {2}, {.requires_grad = true});
    const autograd::DetectAnomaly guard;
    const Tensor loss = sum(exp(log(x * 2)) + 1);
    const std::string error = numerics_error([&] { loss.backward(); });
    EXPECT_EQ(error,
              "backward: the tensor of shape [] to differentiate contains NaN; in the forward "
              "pass, log made NaN "
              "first");
}

TEST(DetectAnomaly, ReportsNanInGradientArgument) {
    const Tensor x = ones({1}, {.requires_grad = true});
    const autograd::DetectAnomaly guard;
    const std::string error = numerics_error([&] { (x * 2).backward(log(tensor({-1.0}))); });
    EXPECT_NE(error.find("gradient argument"), std::string::npos) << error;
}

TEST(DetectAnomaly, AcceptsInfiniteGradients) {
    const Tensor x = zeros({2}, {.requires_grad = true});
    const autograd::DetectAnomaly guard;
    EXPECT_EQ(numerics_error([&] { sum(sqrt(x)).backward(); }), "");
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{INFINITY, INFINITY}));
}

TEST(DetectAnomaly, IsOffByDefaultAndAfterItsGuardIsDestroyed) {
    EXPECT_FALSE(autograd::is_anomaly_detection_enabled());
    const Tensor x = ones({2}, {.requires_grad = true});
    EXPECT_EQ(numerics_error([&] { nan_gradient(x).backward(); }), "");
    {
        const autograd::DetectAnomaly on;
        EXPECT_TRUE(autograd::is_anomaly_detection_enabled());
        const autograd::DetectAnomaly off(false);
        EXPECT_FALSE(autograd::is_anomaly_detection_enabled());
    }
    EXPECT_FALSE(autograd::is_anomaly_detection_enabled());
}

TEST(DetectAnomaly, FreesGraphAfterError) {
    const std::int64_t before = autograd::live_nodes();
    {
        const Tensor x = ones({2}, {.requires_grad = true});
        const autograd::DetectAnomaly guard;
        EXPECT_NE(numerics_error([&] { nan_gradient(x).backward(); }), "");
    }
    EXPECT_EQ(autograd::live_nodes(), before);
}

}  // namespace
}  // namespace axle
