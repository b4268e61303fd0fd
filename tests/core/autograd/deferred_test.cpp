#include "core/autograd/deferred.h"

#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle {
namespace {

using autograd::DeferGradients;
using autograd::GradientQueue;
using tests::expect_close;

struct Layers {
    Layers() {
        manual_seed(4);
        for (const Shape& shape : {Shape{6, 4}, Shape{6}, Shape{4, 6}, Shape{4}, Shape{4, 5}})
            parameters.push_back(randn(shape, {.dtype = f64, .requires_grad = true}));
        x = randn({3, 4}, {.dtype = f64, .requires_grad = true});
    }
    // The last weight is stored as [in, out], and all other parameters are used twice.
    Tensor output() const {
        const auto& p = parameters;
        const Tensor hidden = feed_forward(x, p[0], p[1], p[2], p[3], Activation::gelu);
        const Tensor again = linear(relu(hidden), p[0], p[1], Activation::relu);
        return sum(linear(linear(again, p[2], p[3]), p[4].t()));
    }
    std::vector<Tensor> gradients() const {
        std::vector<Tensor> result;
        for (const Tensor& each : parameters) result.push_back(each.grad());
        return result;
    }

    std::vector<Tensor> parameters;
    Tensor x;
};

TEST(GradientQueue, DefersGradientsOfWeights) {
    const Layers expected, layers;
    expected.output().backward();
    GradientQueue queue;
    {
        const DeferGradients scope(queue);
        layers.output().backward();
    }
    expect_close(layers.x.grad(), expected.x.grad(), 0);
    for (const Tensor& each : layers.gradients()) EXPECT_FALSE(each.defined());
    EXPECT_EQ(queue.size(), 5u);
    EXPECT_GT(queue.bytes(), 0);
    queue.flush();
    EXPECT_EQ(queue.size(), 0u);
    EXPECT_EQ(queue.bytes(), 0);
    for (std::size_t i = 0; i < layers.parameters.size(); ++i)
        expect_close(layers.gradients()[i], expected.gradients()[i], 1e-13);
}

TEST(GradientQueue, DoesNotQueueGradientsOfWeightsThatDependOnTheInput) {
    const auto output = [](const Tensor& x) { return sum(linear(x, x * 2)); };
    const Layers expected, layers;
    output(expected.x).backward();
    GradientQueue queue;
    {
        const DeferGradients scope(queue, layers.x);
        output(layers.x).backward();
    }
    EXPECT_EQ(queue.size(), 0u);
    expect_close(layers.x.grad(), expected.x.grad(), 0);
}

TEST(GradientQueue, KeepsGradientsAfterTheGraphIsFreed) {
    const Layers layers;
    const std::int64_t nodes = autograd::live_nodes();
    GradientQueue queue;
    {
        const Tensor y = layers.output();
        const DeferGradients scope(queue);
        y.backward();
    }
    EXPECT_EQ(autograd::live_nodes(), nodes + 1);  // the node of the view p[4].t()
    queue.flush();
    EXPECT_TRUE(layers.parameters[4].grad().defined());
    EXPECT_EQ(autograd::live_nodes(), nodes);
}

TEST(GradientQueue, CallsHooksOfFinalLeavesInFlush) {
    const Layers layers;
    int finals = 0;
    const auto hook = autograd::on_leaf_final(layers.parameters[0], [&](const Tensor& leaf) {
        ++finals;
        EXPECT_TRUE(leaf.grad().defined());
    });
    GradientQueue queue;
    {
        const DeferGradients scope(queue);
        layers.output().backward();
    }
    EXPECT_EQ(finals, 0);
    queue.flush();
    EXPECT_EQ(finals, 1);
}

TEST(GradientQueue, IsNotUsedOutsideItsScopeOrWithCreateGraph) {
    const Layers layers;
    GradientQueue queue;
    {
        const DeferGradients scope(queue);
        autograd::backward({layers.output()}, {}, {.create_graph = true});
    }
    EXPECT_EQ(queue.size(), 0u);
    EXPECT_TRUE(layers.parameters[0].grad().defined());
    layers.output().backward();
    EXPECT_EQ(queue.size(), 0u);
}

TEST(GradientQueue, IsNotUsedByGradWhichReturnsAllGradients) {
    const Layers expected, layers;
    expected.output().backward();
    GradientQueue queue;
    const DeferGradients scope(queue);
    const auto gradients = autograd::grad({layers.output()}, layers.parameters);
    EXPECT_EQ(queue.size(), 0u);
    for (std::size_t i = 0; i < gradients.size(); ++i)
        expect_close(gradients[i], expected.gradients()[i], 1e-13);
    EXPECT_TRUE(autograd::is_deferring());
}

TEST(GradientQueue, SkipsFrozenParameters) {
    Layers layers;
    layers.parameters[2].set_requires_grad(false);
    layers.parameters[3].set_requires_grad(false);
    GradientQueue queue;
    {
        const DeferGradients scope(queue);
        layers.output().backward();
    }
    EXPECT_EQ(queue.size(), 3u);
    queue.flush();
    EXPECT_FALSE(layers.parameters[2].grad().defined());
    EXPECT_TRUE(layers.parameters[0].grad().defined());
}

}  // namespace
}  // namespace axle
