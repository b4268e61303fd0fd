// Tests properties of the ops of core/shaping.h and core/selection.h, and of linspace(), that the
// op cases do not cover.
#include <cstdint>
#include <limits>

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
