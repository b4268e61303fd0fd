// Tests index() with slices, integers, lists and masks, and index_put_(). tests/cases/index.cpp
// compares index() with PyTorch.
#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

using Values = std::vector<double>;

Tensor grid() { return arange(12, {f32}).reshape({3, 4}); }

TEST(Index, SelectsSlicesAndIntegersAsViews) {
    Tensor x = grid();
    EXPECT_EQ(x.index({1}).to_vector(), (Values{4, 5, 6, 7}));
    EXPECT_EQ(x.index({-1, 2}).item(), 10);
    EXPECT_EQ(x.index({Slice(0, 2), 1}).to_vector(), (Values{1, 5}));
    EXPECT_EQ(x.index({Slice(1), Slice(None, None, 2)}).to_vector(), (Values{4, 6, 8, 10}));
    EXPECT_EQ(x.index({Slice(None, -2)}).shape(), (Shape{1, 4}));
    EXPECT_EQ(x.index({Ellipsis, 0}).to_vector(), (Values{0, 4, 8}));
    EXPECT_EQ(x.index({None, Ellipsis, None}).shape(), (Shape{1, 3, 4, 1}));
    EXPECT_EQ(x.index({}).shape(), x.shape());
    x.index({Slice(0, 2), 1}).fill_(-1);
    EXPECT_EQ(x.select(1, 1).to_vector(), (Values{-1, -1, 9}));
}

TEST(Index, SelectsByMaskInRowMajorOrder) {
    const Tensor x = grid();
    EXPECT_EQ(x.index({x > 8}).to_vector(), (Values{9, 10, 11}));
    EXPECT_EQ(x.index({x > 100}).shape(), (Shape{0}));
    const Tensor rows = tensor({true, false, true});
    EXPECT_EQ(x.index({rows}).shape(), (Shape{2, 4}));
    EXPECT_EQ(x.index({rows, 1}).to_vector(), (Values{1, 9}));
    EXPECT_EQ(x.index({rows, tensor({1, 3})}).to_vector(), (Values{1, 11}));
    EXPECT_EQ(x.index({Slice(1), tensor({true, false, false, true})}).to_vector(),
              (Values{4, 7, 8, 11}));
}

TEST(Index, AccumulatesGradientsOfSelectedElements) {
    const Tensor x = grid().set_requires_grad();
    sum(x.index({x > 8}) * tensor({1.0, 2.0, 3.0})).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}));
    x.zero_grad();
    sum(x.index({tensor({0, 0, -3}), tensor({1})})).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Index, RejectsMasksOnMetaDevice) {
    const Tensor x = ones({3}, {.device = Device::meta()});
    EXPECT_THROW(x.index({x > 0}), DeviceError);
    EXPECT_EQ(x.index({arange(2, {.device = Device::meta()})}).shape(), (Shape{2}));
}

TEST(Index, RejectsNegativeSteps) {
    EXPECT_THROW(grid().index({Slice(None, None, -1)}), ValueError);
}

TEST(IndexPut, WritesToPositionsGivenByIntegersAndSlices) {
    Tensor x = grid();
    x.index_put_({0}, tensor({9.0, 8.0, 7.0, 6.0}));
    x.index_put_({Slice(1), 3}, -1);
    x.index_put_({Ellipsis, 0}, 5, true);
    EXPECT_EQ(x.to_vector(), (Values{14, 8, 7, 6, 9, 5, 6, -1, 13, 9, 10, -1}));
}

TEST(IndexPut, WritesWhereMaskIsTrue) {
    Tensor x = grid();
    x.index_put_({x > 8}, 0);
    EXPECT_EQ(x.to_vector(), (Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0}));
    x.index_put_({tensor({true, false, true})}, tensor({1.0, 2.0, 3.0, 4.0}));
    EXPECT_EQ(x.to_vector(), (Values{1, 2, 3, 4, 4, 5, 6, 7, 1, 2, 3, 4}));
}

TEST(IndexPut, WritesLastValueOfRepeatedIndices) {
    Tensor x = zeros({4});
    x.index_put_({tensor({1, 2, 1, -1})}, tensor({1.0, 2.0, 3.0, 4.0}));
    EXPECT_EQ(x.to_vector(), (Values{0, 3, 2, 4}));
}

TEST(IndexPut, IgnoresLeadingDimensionsOfValuesIfTheirSizeIsOne) {
    Tensor x = zeros({2, 5});
    x.index_put_({0}, ones({1, 1, 5}));
    EXPECT_EQ(x.to_vector(), (Values{1, 1, 1, 1, 1, 0, 0, 0, 0, 0}));
    x.index_put_({0}, ones({1, 1, 5}), true);
    x.index_put_({1, 2}, full({1, 1}, 3.0));
    EXPECT_EQ(x.to_vector(), (Values{2, 2, 2, 2, 2, 0, 0, 3, 0, 0}));
    x.index_put_({tensor({1})}, full({1, 1, 1, 5}, 4.0));
    EXPECT_EQ(x[1].to_vector(), (Values{4, 4, 4, 4, 4}));
    EXPECT_THROW(x.index_put_({0}, ones({2, 1, 5})), ShapeError);
    EXPECT_THROW(x.index_put_({tensor({1})}, ones({2, 1, 5})), ShapeError);
}

TEST(IndexPut, AddsAllValuesWithAccumulate) {
    Tensor x = ones({3, 2});
    x.index_put_({tensor({0, 2, 0}), tensor({1, 0, 1})}, tensor({1.0, 2.0, 3.0}), true);
    EXPECT_EQ(x.to_vector(), (Values{1, 5, 1, 1, 3, 1}));
    x.index_put_({tensor({1, 1})}, tensor({1.0, 10.0}, {2, 1}), true);
    EXPECT_EQ(x.to_vector(), (Values{1, 5, 12, 12, 3, 1}));
}

TEST(IndexPut, WritesWithIndexTensorsThatAreNotAdjacent) {
    Tensor x = zeros({2, 3, 2});
    x.index_put_({tensor({0, 1}), Slice(1), tensor({1, 0})}, tensor({1.0, 2.0, 3.0, 4.0}, {2, 2}));
    EXPECT_EQ(x.to_vector(), (Values{0, 0, 0, 1, 0, 2, 0, 0, 3, 0, 4, 0}));
}

TEST(IndexPut, ChangesStridedViewsAndConvertsValues) {
    const Tensor x = zeros({2, 3}, {i64});
    x.t().index_put_({tensor({0, 2})}, tensor({1.75, -2.75}));
    EXPECT_EQ(x.to_vector(), (Values{1, 0, 1, -2, 0, -2}));
    Tensor flags = tensor({false, false, true});
    flags.index_put_({tensor({0, 2})}, tensor({true, false}));
    EXPECT_EQ(flags.to_vector(), (Values{1, 0, 0}));
}

TEST(IndexPut, ConvertsAccumulatedValuesForSlicesAndForIndexTensors) {
    for (const TensorIndex& first : {TensorIndex(Slice(0, 1)), TensorIndex(tensor({0}))}) {
        Tensor x = ones({2, 2}, {i64});
        x.index_put_({first}, tensor({2.75, -2.75}), true);
        EXPECT_EQ(x.to_vector(), (Values{3, -1, 1, 1}));
    }
}

TEST(IndexPut, IncrementsVersion) {
    Tensor x = zeros({3});
    x.index_put_({tensor({0})}, 1);
    EXPECT_GT(x.version(), 0u);
}

TEST(IndexPut, RejectsInvalidValuesIndicesAndTensorsThatRequireGradient) {
    Tensor x = zeros({3, 2});
    EXPECT_THROW(x.index_put_({tensor({0, 1})}, ones({3})), ShapeError);
    EXPECT_THROW(x.index_put_({0}, ones({3})), ShapeError);
    EXPECT_THROW(x.index_put_({tensor({3})}, 1), IndexError);
    EXPECT_THROW(x.index_put_({0}, Tensor()), UsageError);
    Tensor w = zeros({2}, {.requires_grad = true});
    EXPECT_THROW(w.index_put_({tensor({0})}, 1), UsageError);
    const NoGrad no_grad;
    EXPECT_EQ(w.index_put_({tensor({0})}, 1).to_vector(), (Values{1, 0}));
}

TEST(Index, AcceptsListsAsIndexTensors) {
    Tensor x = arange(6).reshape({3, 2});
    EXPECT_EQ(x.index({{0, 2}}).shape(), (Shape{2, 2}));
    EXPECT_EQ(x.index({{0, 2}}).to_vector(), (Values{0, 1, 4, 5}));
    EXPECT_EQ(x.index({{0, 2}, 1}).to_vector(), (Values{1, 5}));
    EXPECT_EQ(x.index({0, 1}).item(), 1);
    x.index_put_({{0, 1}}, -7);
    EXPECT_EQ(x.to_vector(), (Values{-7, -7, -7, -7, 4, 5}));
}

}  // namespace
}  // namespace axle
