// Tests differentiable op cases: gradients and second derivatives against finite differences,
// subsets of operands that require gradients, and leaked graphs.
#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "tests/close.h"
#include "tests/core/ops/every_op.h"

namespace axle::tests {

namespace {

constexpr double kStep = 1e-6, kTolerance = 1e-5;

// Returns copies of the operands. An operand that has a direction is moved by `step` along this
// direction.
std::vector<Tensor> moved(In x, const std::vector<Tensor>& direction, double step) {
    std::vector<Tensor> result = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (!direction[i].defined()) continue;
        auto values = x[i].to_vector();
        const auto along = direction[i].to_vector();
        for (std::size_t j = 0; j < values.size(); ++j) values[j] += step * along[j];
        result[i] = tensor(values, x[i].shape(), {f64});
    }
    return result;
}

// Returns the central difference (above - below) / (2 kStep).
Tensor slope(const Tensor& above, const Tensor& below) {
    auto values = above.to_vector();
    const auto other = below.to_vector();
    for (std::size_t j = 0; j < values.size(); ++j)
        values[j] = (values[j] - other[j]) / (2 * kStep);
    return tensor(values, above.shape(), {f64});
}

// Returns the sum of outputs * cotangents, which forward_backward() differentiates.
double projection(const OpCase& c, In x) {
    const Outputs y = forward(c, x);
    double sum = 0;
    for (std::size_t k = 0; k < y.size(); ++k) {
        if (!is_floating(y[k].dtype())) continue;
        const auto values = y[k].to_vector();
        for (std::size_t j = 0; j < values.size(); ++j)
            sum += values[j] * cotangent_value(static_cast<std::int64_t>(j), static_cast<int>(k));
    }
    return sum;
}

class SmoothOp : public OpTest {};

// The test checks all elements of small operands and a sample of the elements of larger operands.
TEST_P(SmoothOp, HasGradientThatMatchesFiniteDifferences) {
    const NoGrad no_grad;
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        const std::vector<Tensor> x = make_inputs(c, row, f64);
        Result result;
        {
            const GradMode record_it(true);
            result = forward_backward(c, x, differentiable(c, row));
        }
        if (!std::isfinite(projection(c, x))) continue;
        for (const int operand : differentiable(c, row)) {
            const auto i = static_cast<std::size_t>(operand);
            SCOPED_TRACE(str("gradient of operand ", i));
            const auto gradient = result.grads[i].to_vector();
            const auto values = x[i].to_vector();
            double scale = 1;
            for (const double g : gradient) scale = std::max(scale, std::abs(g));
            const std::size_t stride = values.size() / 24 + 1;
            for (std::size_t j = 0; j < values.size(); j += stride) {
                double side[2] = {};
                for (const int s : {0, 1}) {
                    auto shifted = values;
                    shifted[j] += s == 0 ? kStep : -kStep;
                    std::vector<Tensor> y = x;
                    y[i] = tensor(shifted, x[i].shape(), {f64});
                    side[s] = projection(c, y);
                }
                EXPECT_NEAR(gradient[j], (side[0] - side[1]) / (2 * kStep), kTolerance * scale)
                    << "element " << j;
            }
        }
    }
}

// The operands with gradients (leaves), the outputs (roots), their cotangents (weights), and the
// gradients with a history for a second derivative.
struct DoubleBackward {
    std::vector<Tensor> leaves, roots, weights, grads;
};

DoubleBackward gradients_with_graph(const OpCase& c, const Row& row, In x) {
    std::vector<Tensor> inputs;
    DoubleBackward t;
    for (const Tensor& operand : x) inputs.push_back(operand.detach());
    for (const int i : differentiable(c, row))
        t.leaves.push_back(inputs[static_cast<std::size_t>(i)].set_requires_grad());
    const Outputs y = forward(c, inputs);
    for (std::size_t k = 0; k < y.size(); ++k) {
        if (!y[k].requires_grad()) continue;
        t.roots.push_back(y[k]);
        t.weights.push_back(cotangent(y[k], static_cast<int>(k)).set_requires_grad());
    }
    t.grads = autograd::grad(t.roots, t.leaves, t.weights, {.create_graph = true});
    for (std::size_t i = 0; i < t.grads.size(); ++i)
        if (!t.grads[i].defined()) t.grads[i] = zeros_like(t.leaves[i]).detach();
    return t;
}

// Let g be the gradient of f for cotangents w, and u a direction. The test compares the derivatives
// of <g, u> with central differences. The derivative with respect to x is
// (g(x + hu) - g(x - hu)) / 2h, and the derivative with respect to w is
// (f(x + hu) - f(x - hu)) / 2h. An op may reject second derivatives if OpCase::twice is false.
TEST_P(SmoothOp, HasSecondDerivativeThatMatchesFiniteDifferences) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        const std::vector<Tensor> x = make_inputs(c, row, f64);
        if (!std::isfinite(projection(c, x))) continue;
        std::vector<Tensor> u(x.size()), directions;
        for (const int i : differentiable(c, row)) {
            const auto operand = static_cast<std::size_t>(i);
            directions.push_back(u[operand] = cotangent(x[operand], 100 + i));
        }
        std::vector<Tensor> second, roots, along;
        DoubleBackward t;
        try {
            t = gradients_with_graph(c, row, x);
            for (std::size_t i = 0; i < t.grads.size(); ++i) {
                if (!t.grads[i].requires_grad()) continue;
                roots.push_back(t.grads[i]);
                along.push_back(directions[i]);
            }
            std::vector<Tensor> all = t.leaves;
            all.insert(all.end(), t.weights.begin(), t.weights.end());
            second =
                roots.empty() ? std::vector<Tensor>(all.size()) : autograd::grad(roots, all, along);
            for (std::size_t i = 0; i < all.size(); ++i)
                if (!second[i].defined()) second[i] = zeros_like(all[i]).detach();
        } catch (const UsageError& error) {
            EXPECT_NE(std::string(error.what()).find("can't be differentiated twice"),
                      std::string::npos)
                << error.what();
            EXPECT_FALSE(c.twice) << error.what();
            return;
        }
        const DoubleBackward above = gradients_with_graph(c, row, moved(x, u, kStep));
        const DoubleBackward below = gradients_with_graph(c, row, moved(x, u, -kStep));
        for (std::size_t i = 0; i < t.leaves.size(); ++i) {
            SCOPED_TRACE(str("floating operand ", i));
            expect_close(second[i], slope(above.grads[i], below.grads[i]), kTolerance);
        }
        for (std::size_t k = 0; k < t.weights.size(); ++k) {
            SCOPED_TRACE(str("cotangent ", k));
            expect_close(second[t.leaves.size() + k], slope(above.roots[k], below.roots[k]),
                         kTolerance);
        }
    }
}

class DifferentiableOp : public OpTest {};

TEST_P(DifferentiableOp, GivesSameGradientsIfOtherOperandsAreFrozen) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        const std::vector<Tensor> x = make_inputs(c, row, f32);
        const Result all = forward_backward(c, x, differentiable(c, row));
        for (const int i : differentiable(c, row)) {
            SCOPED_TRACE(str("only operand ", i, " requires a gradient"));
            const Result one = forward_backward(c, x, {i});
            const auto operand = static_cast<std::size_t>(i);
            expect_same_bits(one.grads[operand], all.grads[operand]);
            for (std::size_t k = 0; k < all.outputs.size(); ++k)
                expect_same_bits(one.outputs[k], all.outputs[k]);
        }
    }
}

TEST_P(DifferentiableOp, DoesNotLeakGraph) {
    const OpCase& c = op_case();
    const std::int64_t before = autograd::live_nodes();
    for (const Row& row : c.rows) {
        std::vector<Tensor> x = make_inputs(c, row, f32);
        forward_backward(c, x, differentiable(c, row));
        EXPECT_EQ(autograd::live_nodes(), before) << "after backward, " << describe(row);
        for (const int i : differentiable(c, row))
            x[static_cast<std::size_t>(i)].set_requires_grad();
        forward(c, x);
        EXPECT_EQ(autograd::live_nodes(), before) << "after forward alone, " << describe(row);
        const NoGrad no_grad;
        const Outputs y = forward(c, x);
        EXPECT_EQ(autograd::live_nodes(), before) << "under NoGrad, " << describe(row);
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, SmoothOp, testing::ValuesIn(names_of([](const OpCase& c) {
                             return c.gradient && c.smooth;
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, DifferentiableOp,
                         testing::ValuesIn(names_of([](const OpCase& c) { return c.gradient; })),
                         test_name);

}  // namespace

}  // namespace axle::tests
