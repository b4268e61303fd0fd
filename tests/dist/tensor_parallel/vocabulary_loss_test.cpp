#include "dist/tensor_parallel/vocabulary_loss.h"

#include <cmath>

#include "core/autograd/tensor_slice.h"
#include "gtest/gtest.h"
#include "tests/dist/tensor_parallel/divided_models.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::Group;
using tests::on_ranks;

Tensor waves(const Shape& shape, double frequency) {
    Tensor x = Tensor::empty(shape, {.dtype = f64});
    auto* const data = x.data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
        data[i] = 3 * std::sin(frequency * static_cast<double>(i + 1));
    return x;
}

// Compares the loss and its gradients with cross_entropy() of all logits.
void expect_same_loss(int ranks, std::int64_t rows, std::int64_t vocabulary, bool has_bias) {
    constexpr std::int64_t kWidth = 5;
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < rows; ++i) labels.push_back(i % 5 == 4 ? -100 : i % vocabulary);
    const Tensor targets = tensor(labels);
    Tensor x = waves({rows, kWidth}, 0.7), weight = waves({vocabulary, kWidth}, 1.3);
    Tensor bias = has_bias ? waves({vocabulary}, 2.1) : Tensor();
    x.set_requires_grad(), weight.set_requires_grad();
    if (has_bias) bias.set_requires_grad();
    const Tensor expected = cross_entropy(linear(x, weight, bias), targets);
    mul(expected, 3).backward();
    const std::int64_t padded = (vocabulary + ranks - 1) / ranks * ranks;
    on_ranks(ranks, [&](const Group& group) {
        const auto cut = [&](const Tensor& whole) {
            return autograd::SliceLayout{whole.shape(), 0, 1, padded, ranks, group->rank()}.cut(
                whole);
        };
        Tensor own_x = x.detach().clone(), own_weight = cut(weight);
        Tensor own_bias = has_bias ? cut(bias) : Tensor();
        own_x.set_requires_grad(), own_weight.set_requires_grad();
        if (has_bias) own_bias.set_requires_grad();
        const Tensor loss =
            dist::vocabulary_cross_entropy(own_x, own_weight, own_bias, targets, vocabulary, group);
        expect_close(loss, expected, 1e-12);
        mul(loss, 3).backward();
        expect_close(own_weight.grad(), cut(weight.grad()), 1e-12);
        if (has_bias) expect_close(own_bias.grad(), cut(bias.grad()), 1e-12);
        const Tensor dx = own_x.grad().clone();
        group->all_reduce(dx);
        expect_close(dx, x.grad(), 1e-12);
    });
}

TEST(VocabularyLoss, EqualsTheCrossEntropyOfAllLogits) {
    expect_same_loss(2, 12, 8, false);
    expect_same_loss(3, 12, 8, true);
    expect_same_loss(4, 7, 5, true);  // the last rank has no row of the vocabulary
}

TEST(VocabularyLoss, EqualsTheCrossEntropyInSeveralChunks) { expect_same_loss(2, 600, 7, true); }

TEST(VocabularyLoss, IsNaNAndHasZeroInputGradientWithoutTargets) {
    on_ranks(2, [](const Group& group) {
        const Tensor x = ones({2, 3}, {.requires_grad = true}), weight = ones({4, 3});
        const Tensor loss =
            dist::vocabulary_cross_entropy(x, weight, {}, full({2}, -100), 8, group);
        EXPECT_TRUE(std::isnan(loss.item()));
        loss.backward();
        expect_close(x.grad(), zeros({2, 3}));
    });
}

}  // namespace
}  // namespace axle
