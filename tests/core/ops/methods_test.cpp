// Tests the methods of Tensor that do more than call a function of core/ops.h, and compares other
// methods with the functions of the same names.
#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

using Values = std::vector<double>;

TEST(TensorMethods, ReturnMinimaAndMaximaWithTheirIndices) {
    const Tensor x = tensor({1.0, 5.0, 5.0, 4.0, 0.0, 2.0}, {2, 3}).set_requires_grad();
    const auto [values, indices] = x.max(1);
    EXPECT_EQ(values.to_vector(), (Values{5, 4}));
    EXPECT_EQ(indices.to_vector(), (Values{1, 0}));
    EXPECT_EQ(indices.dtype(), i64);
    EXPECT_EQ(values.shape(), (Shape{2}));
    EXPECT_EQ(x.max(0, true).first.shape(), (Shape{1, 3}));
    EXPECT_EQ(x.min(-1).first.to_vector(), (Values{1, 0}));
    EXPECT_EQ(x.min(-1).second.to_vector(), (Values{0, 1}));
    sum(values).backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 1, 0, 1, 0, 0}));
    EXPECT_EQ(tensor(3.0).max(0).first.item(), 3);
}

TEST(TensorMethods, ReturnFlatIndicesFromArgmaxAndArgmin) {
    const Tensor x = tensor({1, 5, 0, 5}, {2, 2});
    EXPECT_EQ(x.argmax().item<int>(), 1);
    EXPECT_EQ(x.argmin().item<int>(), 2);
    EXPECT_EQ(x.argmax().shape(), Shape());
    EXPECT_EQ(x.t().argmin().item<int>(), 1);
}

TEST(TensorMethods, ReturnItemAsTheRequestedType) {
    const Tensor x = tensor(2.75);
    static_assert(std::is_same_v<decltype(x.item<float>()), float>);
    EXPECT_EQ(x.item<float>(), 2.75f);
    EXPECT_EQ(x.item<int>(), 2);
    EXPECT_TRUE(x.item<bool>());
    EXPECT_EQ(tensor((std::int64_t{1} << 60) + 1).item<std::int64_t>(),
              (std::int64_t{1} << 60) + 1);
}

TEST(TensorMethods, ConvertToDTypeAndDeviceOfOtherTensor) {
    const Tensor x = arange(3);
    EXPECT_EQ(x.type_as(ones({1}, {.dtype = bf16})).dtype(), bf16);
    EXPECT_TRUE(x.type_as(arange(1)).is_same(x));
    EXPECT_TRUE(x.type_as(ones({1}, {.device = Device::meta()})).device().is_meta());
    EXPECT_TRUE(x.cpu().is_same(x));
    EXPECT_EQ(x.ndim(), 1);
}

TEST(TensorMethods, ReturnVarianceAndStandardDeviation) {
    const Tensor x = tensor({1.0, 3.0, 2.0, 10.0}, {2, 2});
    EXPECT_EQ(x.var(1).to_vector(), (Values{2, 32}));
    EXPECT_EQ(x.std(1, 0).to_vector(), (Values{1, 4}));
    const Tensor equal = ones({2}).set_requires_grad();
    equal.std().backward();
    EXPECT_EQ(equal.grad().to_vector(), (Values{0, 0}));
}

TEST(TensorMethods, RemoveAllDimensionsOfSizeOne) {
    const Tensor x = arange(6).reshape({1, 2, 1, 3});
    EXPECT_EQ(x.squeeze().shape(), (Shape{2, 3}));
    EXPECT_EQ(ones({1, 1}).squeeze().shape(), Shape());
}

TEST(TensorMethods, MatchFunctionsOfTheSameName) {
    const Tensor x = tensor({-1.5, 0.5, 2.0, 3.0, -0.25, 1.0}, {2, 3});
    const Tensor y = tensor({1.0, 0.5, -2.0});
    const Tensor columns = tensor({2, 0});
    const Tensor positions = tensor({2, 0, 1, 1}, {2, 2});
    const std::pair<Tensor, Tensor> pairs[] = {
        {x.add(y), add(x, y)},
        {x.sub(y), sub(x, y)},
        {x.mul(y), mul(x, y)},
        {x.div(y), div(x, y)},
        {x.add(2), add(x, 2)},
        {x.sub(2), sub(x, 2)},
        {x.mul(2), mul(x, 2)},
        {x.div(2), div(x, 2)},
        {x.eq(y), eq(x, y)},
        {x.ne(y), ne(x, y)},
        {x.lt(y), lt(x, y)},
        {x.le(y), le(x, y)},
        {x.gt(y), gt(x, y)},
        {x.ge(y), ge(x, y)},
        {x.eq(0.5), eq(x, 0.5)},
        {x.ne(0.5), ne(x, 0.5)},
        {x.lt(0.5), lt(x, 0.5)},
        {x.le(0.5), le(x, 0.5)},
        {x.gt(0.5), gt(x, 0.5)},
        {x.ge(0.5), ge(x, 0.5)},
        {x.neg(), neg(x)},
        {x.sigmoid(), sigmoid(x)},
        {x.relu(), relu(x)},
        {x.abs().rsqrt(), rsqrt(abs(x))},
        {x.clamp(-1, 1), clamp(x, -1, 1)},
        {x.softmax(0), softmax(x, 0)},
        {x.log_softmax(0), log_softmax(x, 0)},
        {x.any(1), any(x, 1)},
        {x.all(0, true), all(x, 0, true)},
        {x.norm(1, 0), norm(x, 1, 0)},
        {x.cumsum(1), cumsum(x, 1)},
        {x.argmin(1), argmin(x, 1)},
        {x.sort(1).second, argsort(x, 1)},
        {x.argsort(1, true), argsort(x, 1, true)},
        {x.topk(2, 1).first, topk(x, 2, 1).first},
        {x.split(1, 1)[2], split(x, 1, 1)[2]},
        {x.split({1, 2}, 1)[1], narrow(x, 1, 1, 2)},
        {x.chunk(2)[1], narrow(x, 0, 1, 1)},
        {x.index_select(1, columns), index_select(x, 1, columns)},
        {x.gather(1, positions), gather(x, 1, positions)},
    };
    for (std::size_t i = 0; i < std::size(pairs); ++i) {
        EXPECT_EQ(pairs[i].first.shape(), pairs[i].second.shape()) << "pair " << i;
        EXPECT_EQ(pairs[i].first.dtype(), pairs[i].second.dtype()) << "pair " << i;
        EXPECT_EQ(pairs[i].first.to_vector(), pairs[i].second.to_vector()) << "pair " << i;
    }
}

TEST(TensorMethods, TransposeAtMostTwoDimensions) {
    const Tensor row = arange(3), matrix = arange(6).reshape({2, 3});
    EXPECT_TRUE(row.t().is_same(row));
    EXPECT_EQ(tensor(2).t().shape(), Shape());
    EXPECT_EQ(matrix.t().shape(), (Shape{3, 2}));
    EXPECT_EQ(matrix.t().to_vector(), (Values{0, 3, 1, 4, 2, 5}));
    EXPECT_THROW(zeros({2, 3, 4}).t(), ShapeError);
}

}  // namespace
}  // namespace axle
