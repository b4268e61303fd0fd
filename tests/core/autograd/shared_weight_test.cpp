// Tests gradients of a weight that is used as an embedding table and as the matrix of a linear
// layer. The embedding adds its rows to the gradient of the layer.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/losses.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_same_bits;

constexpr std::int64_t kRows = 11, kWidth = 6;

Tensor random_weight() {
    manual_seed(5);
    return randn({kRows, kWidth}).requires_grad_();
}
Tensor ids_of(const std::vector<std::int64_t>& ids) {
    return tensor(ids, {static_cast<std::int64_t>(ids.size())});
}

// Returns a loss that uses `table` as an embedding and `matrix` in a linear layer after it.
Tensor loss_of(const Tensor& table, const Tensor& matrix,
               std::optional<std::int64_t> padding = {}) {
    const Tensor ids = ids_of({3, 0, 3, 7, 10, 3});
    return linear_cross_entropy(embedding(ids, table, padding), matrix, ids_of({1, 2, 3, 4, 5, 6}));
}

// Returns the gradient that a weight must have, as the sum of the gradients of two weights.
Tensor expected_gradient(std::optional<std::int64_t> padding = {}) {
    const Tensor table = random_weight(), matrix = random_weight();
    loss_of(table, matrix, padding).backward();
    return matrix.grad() + table.grad();
}

TEST(SharedEmbeddingWeight, GetsTheSumOfItsGradients) {
    const Tensor weight = random_weight();
    loss_of(weight, weight).backward();
    expect_same_bits(weight.grad(), expected_gradient());
}

TEST(SharedEmbeddingWeight, GetsNoGradientFromThePaddingRow) {
    const Tensor weight = random_weight();
    loss_of(weight, weight, 3).backward();
    expect_same_bits(weight.grad(), expected_gradient(3));
}

TEST(SharedEmbeddingWeight, AccumulatesOverPasses) {
    const Tensor weight = random_weight();
    const Tensor loss = loss_of(weight, weight);
    autograd::backward({loss}, {}, {.retain_graph = true});
    const Tensor first = weight.grad().clone();
    loss.backward();
    expect_same_bits(first, expected_gradient());
    expect_same_bits(weight.grad(), first * 2.0);
}

TEST(SharedEmbeddingWeight, CallsHooksOnceWithTheSum) {
    const Tensor weight = random_weight();
    std::vector<Tensor> seen;
    const auto hook = weight.register_hook([&](const Tensor& g) { seen.push_back(g.clone()); });
    loss_of(weight, weight).backward();
    ASSERT_EQ(seen.size(), 1U);
    expect_same_bits(seen[0], expected_gradient());
}

TEST(SharedEmbeddingWeight, GivesTheSumToGrad) {
    const Tensor weight = random_weight();
    const Tensor gradient = autograd::grad({loss_of(weight, weight)}, {weight})[0];
    expect_same_bits(gradient, expected_gradient());
    EXPECT_FALSE(weight.grad().defined());
}

TEST(SharedEmbeddingWeight, CanBeDifferentiatedTwice) {
    const auto output = [](const Tensor& table, const Tensor& matrix) {
        const Tensor y = linear(embedding(ids_of({3, 0, 3}), table), matrix);
        return (y * y).sum();
    };
    const autograd::BackwardOptions recorded = {.create_graph = true};
    const Tensor table = random_weight(), matrix = random_weight();
    const auto parts = autograd::grad({output(table, matrix)}, {table, matrix}, {}, recorded);
    const Tensor whole = parts[0] + parts[1];
    (whole * whole).sum().backward();

    const Tensor weight = random_weight();
    const Tensor first = autograd::grad({output(weight, weight)}, {weight}, {}, recorded)[0];
    (first * first).sum().backward();
    tests::expect_close(weight.grad(), table.grad() + matrix.grad(), 1e-5);
}

TEST(SharedEmbeddingWeight, NeedsNoSecondTableForItsGradient) {
    const Tensor weight = zeros({4096, 256}, {.requires_grad = true});
    const std::int64_t table = weight.numel() * 4;
    const Tensor loss =
        linear_cross_entropy(embedding(ids_of({1, 2, 3}), weight), weight, ids_of({1, 2, 3}));
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().current;
    loss.backward();
    EXPECT_LT(host_memory::stats().peak - before, table / 2);
}

// The gradient for a loss that is scaled, for example by the number of accumulated passes.
TEST(LinearCrossEntropy, MultipliesGradientsByTheGradientOfTheLoss) {
    for (const double scale : {1.0, 0.25, 3.0}) {
        const Tensor table = random_weight(), matrix = random_weight();
        (loss_of(table, matrix) * scale).backward();
        const Tensor x = random_weight(), w = random_weight();
        const Tensor rows = embedding(ids_of({3, 0, 3, 7, 10, 3}), x);
        (cross_entropy(linear(rows, w), ids_of({1, 2, 3, 4, 5, 6})) * scale).backward();
        tests::expect_close(matrix.grad(), w.grad(), 1e-6);
        tests::expect_close(table.grad(), x.grad(), 1e-6);
    }
}

TEST(LinearCrossEntropy, GivesNewGradientsInEachPass) {
    const Tensor matrix = random_weight();
    const Tensor x = randn({4, kWidth}).requires_grad_();
    const Tensor loss = linear_cross_entropy(x, matrix, ids_of({1, 2, 3, 4}));
    autograd::backward({loss}, {}, {.retain_graph = true});
    const Tensor of_x = x.grad().clone(), of_matrix = matrix.grad().clone();
    x.grad().zero_();
    matrix.grad().zero_();
    loss.backward();
    expect_same_bits(x.grad(), of_x);
    expect_same_bits(matrix.grad(), of_matrix);
}

}  // namespace
}  // namespace axle
