// Tests properties of the ops of core/shaping.h and core/selection.h, and of linspace(), that the
// op cases do not cover.
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

using Values = std::vector<double>;

TEST(Diagonal, WritesThroughToMatrix) {
    const Tensor x = zeros({2, 3});
    diagonal(x, 1).copy_(tensor({1.0, 2.0}));
    EXPECT_EQ(x.to_vector(), (Values{0, 1, 0, 0, 0, 2}));
}

TEST(Unbind, ReturnsEmptyListForDimensionOfSizeZero) {
    EXPECT_TRUE(unbind(zeros({0, 3})).empty());
    EXPECT_TRUE(unbind(zeros({0, 3}, {.requires_grad = true})).empty());
}

TEST(Unfold, AddsGradientsOfOverlappingWindows) {
    const Tensor x = zeros({5}, {.requires_grad = true});
    sum(unfold(x, 0, 3, 1)).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 2, 3, 2, 1}));
}

// Returns the gradient of x, given the gradients of its slices [2, 1], [2, 2] and [2, 1].
Tensor gradient_of_split(const std::vector<Tensor>& gradients,
                         const std::vector<std::int64_t>& order) {
    const Tensor x = zeros({2, 4}, {.requires_grad = true});
    std::vector<Tensor> parts = split(x, {1, 2, 1}, 1), roots, given;
    for (const std::int64_t i : order) {
        roots.push_back(parts[static_cast<std::size_t>(i)]);
        given.push_back(gradients[static_cast<std::size_t>(i)]);
    }
    return autograd::grad(roots, {x}, given)[0];
}

TEST(Split, UsesAGradientWhoseSlicesAreTheGradientsOfTheParts) {
    const Tensor whole = arange(8, {f32}).reshape({2, 4});
    const std::vector<Tensor> slices = split(whole, {1, 2, 1}, 1);
    const Tensor dx = gradient_of_split(slices, {0, 1, 2});
    EXPECT_EQ(dx.raw_data(), whole.raw_data());
    EXPECT_EQ(dx.to_vector(), whole.to_vector());
}

TEST(Split, CopiesGradientsThatAreNotConsecutiveSlices) {
    const Tensor whole = arange(8, {f32}).reshape({2, 4});
    const std::vector<Tensor> slices = split(whole, {1, 2, 1}, 1);
    // A part without a gradient, slices in another order, of another tensor or of a wider one.
    EXPECT_EQ(gradient_of_split(slices, {0, 1}).to_vector(), (Values{0, 1, 2, 0, 4, 5, 6, 0}));
    EXPECT_EQ(gradient_of_split({slices[2], slices[1], slices[0]}, {0, 1, 2}).to_vector(),
              (Values{3, 1, 2, 0, 7, 5, 6, 4}));
    EXPECT_EQ(gradient_of_split({slices[0], slices[1] + 10, slices[2]}, {0, 1, 2}).to_vector(),
              (Values{0, 11, 12, 3, 4, 15, 16, 7}));
    const std::vector<Tensor> wider = split(arange(10, {f32}).reshape({2, 5}), {1, 2, 1, 1}, 1);
    EXPECT_EQ(gradient_of_split(wider, {0, 1, 2}).to_vector(), (Values{0, 1, 2, 3, 5, 6, 7, 8}));
}

TEST(Split, RecordsTheGradientOfSlices) {
    const Tensor x = ones({2, 4}, {.requires_grad = true});
    const std::vector<Tensor> parts = split(x, {1, 3}, 1);
    const Tensor whole = arange(8, {f32}).reshape({2, 4}).set_requires_grad();
    const std::vector<Tensor> slices = split(whole, {1, 3}, 1);
    const Tensor dx = autograd::grad(parts, {x}, slices, {.create_graph = true})[0];
    const Tensor second = autograd::grad({sum(dx * dx)}, {whole})[0];
    EXPECT_EQ(second.to_vector(), (whole.detach() * 2).to_vector());
}

// The gradient of the sum of both halves is accumulated in place, but not in the tensors of hooks.
TEST(Split, DoesNotChangeTheGradientsOfThePartsThatHooksKeep) {
    const Tensor x = zeros({2, 4}, {.requires_grad = true});
    const Tensor y = x * 1;
    const Tensor total = sum(y);  // recorded first, so that its gradient is added to the joined one
    const std::vector<Tensor> parts = split(y, {2, 2}, 1);
    std::vector<Tensor> kept;
    const auto keep = [&](const Tensor& gradient) {
        kept.push_back(gradient);
        return Tensor();
    };
    const auto first = autograd::register_hook(parts[0], keep);
    const auto second = autograd::register_hook(parts[1], keep);
    const std::vector<Tensor> slices = split(arange(8, {f32}).reshape({2, 4}), {2, 2}, 1);
    autograd::backward({parts[0], parts[1], total}, {slices[0], slices[1], Tensor()});
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 2, 3, 4, 5, 6, 7, 8}));
    ASSERT_EQ(kept.size(), 2u);
    for (const Tensor& gradient : kept)
        EXPECT_EQ(gradient.to_vector(), gradient.raw_data() == slices[0].raw_data()
                                            ? (Values{0, 1, 4, 5})
                                            : (Values{2, 3, 6, 7}));
}

TEST(Fold, MultipliesPixelsOfAnUnfoldedImageByTheirNumberOfWindows) {
    const Tensor x = arange(16, {f32}).reshape({1, 4, 4});
    const Tensor counts = fold(unfold(ones({1, 4, 4}), 3), {4, 4}, 3);
    EXPECT_EQ(fold(unfold(x, 3), {4, 4}, 3).to_vector(), mul(x, counts).to_vector());
}

TEST(Slice, SelectsTheFirstElementIfTheStepIsTheLargestInteger) {
    const Tensor x = arange(12, {f32}).reshape({4, 3});
    for (const std::int64_t step : {INT64_MAX, INT64_MAX - 1, std::int64_t{4}}) {
        EXPECT_EQ(slice(x, 0, 1, 4, step).to_vector(), (Values{3, 4, 5}));
        EXPECT_EQ(slice(x, 0, 2, 2, step).shape(), (Shape{0, 3}));
    }
}

TEST(Chunk, ReturnsPartsOfOneElementForTheLargestNumberOfChunks) {
    const auto parts = chunk(arange(3, {f32}), INT64_MAX);
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[2].to_vector(), (Values{2}));
}

TEST(TensorSplit, AcceptsMoreIndicesThanATensorCanHaveDimensions) {
    const std::vector<std::int64_t> indices = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    EXPECT_EQ(tensor_split(arange(10), indices).size(), 10u);
    EXPECT_EQ(tensor_split(arange(10), 10).size(), 10u);
}

TEST(RepeatAndRoll, ReturnCopiesIfNothingChanges) {
    const Tensor x = zeros({2});
    repeat(x, 1).fill_(1);
    repeat_interleave(x, 1).fill_(1);
    roll(x, 0).fill_(1);
    EXPECT_EQ(x.to_vector(), (Values{0, 0}));
}

TEST(Scatter, GivesGradientToAllSourcesOfAnElementLikePyTorch) {
    const Tensor x = zeros({3}, {.requires_grad = true});
    const Tensor src = ones({2}, {.requires_grad = true});
    sum(scatter(x, 0, tensor({1, 1}), src) * tensor({1.0, 2.0, 3.0})).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 0, 3}));
    EXPECT_EQ(src.grad().to_vector(), (Values{2, 2}));
}

TEST(ScatterReduce, PropagatesNaN) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Tensor x = tensor({1.0, nan}), src = tensor({nan, 3.0});
    for (const IndexReduction reduce : {IndexReduction::amax, IndexReduction::amin}) {
        const Tensor y = scatter_reduce(x, 0, tensor({0, 1}), src, reduce);
        EXPECT_TRUE(isnan(y).min().item<bool>());
    }
}

TEST(IndexPut, PropagatesGradientsToOperandAndValue) {
    const Tensor x = zeros({3}, {.requires_grad = true});
    const Tensor value = ones({}, {.requires_grad = true});
    sum(index_put(x, {tensor({0, 2})}, value) * tensor({1.0, 2.0, 3.0})).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 2, 0}));
    EXPECT_EQ(value.grad().item(), 4);
    EXPECT_EQ(x.to_vector(), (Values{0, 0, 0}));
}

TEST(Isin, FindsValuesInLongLists) {
    const Tensor all = arange(1000), even = arange(0, 1000, 2);
    EXPECT_EQ(sum(isin(all, even)).item_int(), 500);
    EXPECT_EQ(sum(isin(all, even, true)).item_int(), 500);
    EXPECT_EQ(sum(isin(all, add(even, 1000))).item_int(), 0);
}

TEST(Linspace, ReturnsTheExactEndPointAndCanRequireAGradient) {
    for (const DType dtype : {f64, f32, f16, bf16})
        EXPECT_EQ(linspace(0, 1, 50, {dtype}).select(0, -1).item(), 1);
    EXPECT_TRUE(linspace(0, 1, 3, {.requires_grad = true}).requires_grad());
}

TEST(Ops, ReportTheUndefinedTensorOfAList) {
    const Tensor none, x = ones({2, 2});
    tests::expect_error<UsageError>({"cat: tensors[0] is undefined; the list has 2 tensors"}, [&] {
        cat({none, x});
    });
    tests::expect_error<UsageError>({"cat: tensors[2] is undefined; the list has 3 tensors"}, [&] {
        cat({x, x, none});
    });
    tests::expect_error<UsageError>({"einsum: tensors[1] is undefined; the list has 2 tensors"},
                                    [&] {
                                        einsum("ij,jk->ik", {x, none});
                                    });
}

}  // namespace
}  // namespace axle
