// Tests the dtypes that full(), tensor() and arange() infer, and numbers as arguments of ops.
#include <gtest/gtest.h>

#include "core/ops.h"

namespace axle {
namespace {

TEST(Arange, InfersDTypeFromArguments) {
    const Tensor steps = arange(0.0, 1.0, 0.25);
    EXPECT_EQ(steps.dtype(), f32);
    EXPECT_EQ(steps.to_vector(), (std::vector<double>{0, 0.25, 0.5, 0.75}));
    EXPECT_EQ(arange(0, 1, 0.5).dtype(), f32);
    EXPECT_EQ(arange(3.0).dtype(), f32);
    EXPECT_EQ(arange(3).dtype(), i64);
    EXPECT_EQ(arange(1, 7, 2).dtype(), i64);
    EXPECT_EQ(arange(2, 5).to_vector(), (std::vector<double>{2, 3, 4}));
}

TEST(Arange, InfersDTypeIfOptionsDoNotSetIt) {
    EXPECT_EQ(arange(10, {.device = Device::cpu()}).dtype(), i64);
    EXPECT_EQ(arange(0.5, 2, {.device = Device::meta()}).dtype(), f32);
    EXPECT_TRUE(arange(3.0, {.requires_grad = true}).requires_grad());
}

TEST(Arange, PrefersDTypeOfOptions) {
    EXPECT_EQ(arange(3, {.dtype = f64}).dtype(), f64);
    EXPECT_EQ(arange(0.0, 3.0, 1.0, {i64}).dtype(), i64);
}

TEST(Arange, RejectsStepThatLeadsAwayFromEnd) {
    EXPECT_THROW(arange(0, -1, 3), ValueError);
    EXPECT_THROW(arange(0.0, 1.0, -3.0), ValueError);
    EXPECT_EQ(arange(2, 2, -1).numel(), 0);
}

TEST(Full, InfersDTypeFromValueUnlessOptionsSetIt) {
    EXPECT_EQ(full({2}, 3).dtype(), i64);
    EXPECT_EQ(full({2}, 3u).dtype(), i64);
    EXPECT_EQ(full({2}, true).dtype(), boolean);
    EXPECT_EQ(full({2}, 3.0).dtype(), f32);
    EXPECT_EQ(full({2}, 3.0f).dtype(), f32);
    EXPECT_EQ(full({2}, 3, {.device = Device::meta()}).dtype(), i64);
    EXPECT_EQ(full({2}, 3, {f32}).dtype(), f32);
    EXPECT_EQ(full({2}, 3, TensorOptions()).dtype(), f32);
    EXPECT_EQ(full({2}, 2.5, {.dtype = i64}).to_vector(), (std::vector<double>{2, 2}));
    EXPECT_THROW(full({2}, 3, {.requires_grad = true}), UsageError);
}

TEST(FullLike, KeepsDTypeOfTensor) {
    EXPECT_EQ(full_like(zeros({2}), 3).dtype(), f32);
    EXPECT_EQ(full_like(arange(2), 2.5).dtype(), i64);
}

TEST(TensorOfValues, InfersDTypeFromBracedLists) {
    EXPECT_EQ(tensor({1, 2}, {2}).dtype(), i64);
    EXPECT_EQ(tensor({1L, 2L}, {2}).dtype(), i64);
    EXPECT_EQ(tensor({1L, 2}, {2}).dtype(), i64);
    EXPECT_EQ(tensor({1.5, 2.0}, {2}).dtype(), f32);
    EXPECT_EQ(tensor({1.5f, 2.0f}, {2}).dtype(), f32);
    EXPECT_EQ(tensor({1.5, 2}, {2}).dtype(), f32);
    EXPECT_EQ(tensor({true, false}, {2}).dtype(), boolean);
    EXPECT_EQ(tensor({true, 2}, {2}).dtype(), i64);
    EXPECT_EQ(tensor({}, {0}).dtype(), f32);
    EXPECT_EQ(tensor({true, false}, {2}).to_vector(), (std::vector<double>{1, 0}));
    EXPECT_EQ(tensor({1.5, 2}, {2}).to_vector(), (std::vector<double>{1.5, 2}));
}

TEST(TensorOfValues, InfersDTypeFromVectors) {
    EXPECT_EQ(tensor(std::vector<double>{1, 2}, {2}).dtype(), f32);
    EXPECT_EQ(tensor(std::vector<float>{1, 2}, {2}).dtype(), f32);
    EXPECT_EQ(tensor(std::vector<std::int64_t>{1, 2}, {2}).dtype(), i64);
    EXPECT_EQ(tensor(std::vector<int>{1, 2}, {2}).dtype(), i64);
}

TEST(TensorOfValues, KeepsLargeIntegersExact) {
    constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 1;
    EXPECT_EQ(tensor({kLarge}).item_int(), kLarge);
    EXPECT_EQ(tensor(std::vector<std::int64_t>{kLarge}).item_int(), kLarge);
}

TEST(TensorOfValues, PrefersDTypeOfOptionsAndRejectsGradientsOfIntegers) {
    EXPECT_EQ(tensor({1, 2}, {2}, {.dtype = f64}).dtype(), f64);
    EXPECT_EQ(tensor({1.5, 2.5}, {2}, {i64}).to_vector(), (std::vector<double>{1, 2}));
    EXPECT_TRUE(tensor({1.5, 2}, {2}, {.requires_grad = true}).requires_grad());
    EXPECT_THROW(tensor({1, 2}, {2}, {.requires_grad = true}), UsageError);
    const TensorOptions options = {.dtype = f64};
    EXPECT_EQ(tensor({1, 2}, {2}, options).dtype(), f64);
    EXPECT_EQ(arange(3, options).dtype(), f64);
}

TEST(TensorOfValues, HasOneDimensionForListAndNoneForNumber) {
    EXPECT_EQ(tensor({1, 2, 3}).shape(), (Shape{3}));
    EXPECT_EQ(tensor({1.5, 2}).shape(), (Shape{2}));
    EXPECT_EQ(tensor(std::vector<double>{1, 2, 3}).shape(), (Shape{3}));
    EXPECT_EQ(tensor(3.5).shape(), Shape());
    EXPECT_EQ(tensor(3.5).dtype(), f32);
    EXPECT_EQ(tensor(3).dtype(), i64);
    EXPECT_EQ(tensor(true).dtype(), boolean);
    EXPECT_EQ(tensor({5}, {}).shape(), Shape{1});
    EXPECT_EQ(tensor({5}, Shape()).shape(), Shape());
}

TEST(TensorOfValues, AcceptsOptionsWithoutShape) {
    const auto is = [](const Tensor& x, DType dtype, std::vector<double> values) {
        EXPECT_EQ(x.dtype(), dtype);
        EXPECT_EQ(x.shape(), Shape(values.size()));
        EXPECT_EQ(x.to_vector(), values);
    };
    is(tensor({1, 2, 3}, {.dtype = f64}), f64, {1, 2, 3});
    is(tensor({1, 2}, {f32}), f32, {1, 2});
    is(tensor({1}, {.dtype = f32}), f32, {1});
    is(tensor({1.5, 2}, {.dtype = i64}), i64, {1, 2});
    is(tensor({1, 2}, {.device = Device::cpu()}), i64, {1, 2});
    is(tensor({1, 2}, TensorOptions()), f32, {1, 2});
    is(tensor(std::vector<int>{1, 2}, {.dtype = bf16}), bf16, {1, 2});
    EXPECT_TRUE(tensor({1.0, 2.0}, {.requires_grad = true}).requires_grad());
    EXPECT_TRUE(tensor({1.5, 2}, {.requires_grad = true}).requires_grad());
    EXPECT_EQ(tensor({1, 2}, {2, 1}).shape(), (Shape{2, 1}));
    EXPECT_EQ(tensor({1, 2}, 2, {.dtype = f32}).shape(), Shape{2});
}

TEST(Scalar, AcceptsArithmeticTypesThatFitInt64) {
    const Tensor x = tensor({2.0, 4.0});
    const std::vector<int> two(2);
    EXPECT_EQ((x / two.size()).to_vector(), (std::vector<double>{1, 2}));
    EXPECT_EQ((x * 2u).to_vector(), (std::vector<double>{4, 8}));
    EXPECT_EQ((x + 1L).to_vector(), (std::vector<double>{3, 5}));
    EXPECT_EQ((arange(3) * std::uint8_t{2}).dtype(), i64);
    EXPECT_THROW(x * UINT64_MAX, ValueError);
}

// An odd integer above 2^53. A double cannot represent it.
constexpr std::int64_t kExact = 9007199254740993;

TEST(Scalar, StoresIntegersExactly) {
    EXPECT_EQ(Scalar(kExact).to_int64(), kExact);
    EXPECT_EQ(Scalar(INT64_MIN).to_int64(), INT64_MIN);
    EXPECT_FALSE(Scalar(kExact).fits_double());
    EXPECT_TRUE(Scalar(1e300).fits_double());
    EXPECT_EQ(full({}, kExact).item_int(), kExact);
    EXPECT_EQ(tensor({true, kExact})[1].item_int(), kExact);
    EXPECT_EQ(tensor(static_cast<unsigned long>(kExact)).item_int(), kExact);
    const Tensor x = zeros({2}, {i64});
    EXPECT_EQ(full_like(x, -kExact)[0].item_int(), -kExact);
    EXPECT_EQ(masked_fill(x, tensor({false, true}), kExact)[1].item_int(), kExact);
    EXPECT_EQ(where(tensor(true), kExact, 0).item_int(), kExact);
    EXPECT_EQ(where(tensor(true), kExact, x)[0].item_int(), kExact);
    EXPECT_EQ(pad(x, {1, 0}, PadMode::constant, kExact)[0].item_int(), kExact);
    Tensor y = x.clone();
    EXPECT_EQ(y.index_put_({0}, kExact)[0].item_int(), kExact);
    EXPECT_EQ(y.fill_(kExact)[1].item_int(), kExact);
}

TEST(Scalar, IsExactInIntegerArithmetic) {
    const Tensor x = tensor({1, -1});
    EXPECT_EQ(add(x, kExact)[0].item_int(), kExact + 1);
    EXPECT_EQ(add(tensor({true}), kExact).item_int(), kExact + 1);
    EXPECT_EQ((kExact + x)[1].item_int(), kExact - 1);
    EXPECT_EQ(sub(x, kExact)[0].item_int(), 1 - kExact);
    EXPECT_EQ(sub(kExact, x)[0].item_int(), kExact - 1);
    EXPECT_EQ(mul(x, kExact)[1].item_int(), -kExact);
    EXPECT_EQ(pow(x, kExact)[1].item_int(), -1);
    EXPECT_EQ(pow(kExact, tensor({1})).item_int(), kExact);
    Tensor y = zeros({1}, {i64});
    EXPECT_EQ(y.add_(kExact).item_int(), kExact);
    EXPECT_EQ(y.sub_(kExact).item_int(), 0);
    EXPECT_EQ(y.add_(1).mul_(kExact).item_int(), kExact);
    EXPECT_EQ(y.add_(tensor({1}), kExact).item_int(), 2 * kExact);
    y -= kExact;
    EXPECT_EQ(y.item_int(), kExact);
    EXPECT_EQ(add(ones({1}), kExact).dtype(), f32);
}

TEST(Scalar, IsExactInIntegerComparison) {
    const Tensor x = tensor({kExact - 1, kExact, kExact + 1});
    EXPECT_EQ((x == kExact).to_vector(), (std::vector<double>{0, 1, 0}));
    EXPECT_EQ((x != kExact).to_vector(), (std::vector<double>{1, 0, 1}));
    EXPECT_EQ((x < kExact).to_vector(), (std::vector<double>{1, 0, 0}));
    EXPECT_EQ((kExact < x).to_vector(), (std::vector<double>{0, 0, 1}));
}

TEST(Arange, KeepsIntegersAbove2To53Exact) {
    const Tensor x = arange(kExact, kExact + 5, 2);
    EXPECT_EQ(x.shape(), Shape{3});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(x[i].item_int(), kExact + 2 * i);
    EXPECT_EQ(arange(-kExact, -kExact - 2, -1)[1].item_int(), -kExact - 1);
}

TEST(Pow, RaisesNumberToPowerOfEachElement) {
    EXPECT_EQ(pow(2.0, tensor({-1.0, 3.0})).to_vector(), (std::vector<double>{0.5, 8}));
    EXPECT_EQ(pow(2, tensor({0, 3})).dtype(), i64);
    EXPECT_EQ(pow(2, tensor({0, 3})).to_vector(), (std::vector<double>{1, 8}));
    EXPECT_EQ(pow(2.0, tensor({0, 3})).dtype(), f32);
}

TEST(Where, InfersDTypeOfNumbers) {
    const Tensor condition = tensor({true, false});
    EXPECT_EQ(where(condition, 1, -2).dtype(), i64);
    EXPECT_EQ(where(condition, 1, -2).to_vector(), (std::vector<double>{1, -2}));
    EXPECT_EQ(where(condition, 1.0, 0.5).dtype(), f32);
    const Tensor half = ones({2}, {.dtype = bf16});
    EXPECT_EQ(where(condition, half, 0.5).dtype(), bf16);
    EXPECT_EQ(where(condition, 0.5, arange(2)).dtype(), f32);
}

TEST(ComparisonOperators, ReturnBooleanTensors) {
    const Tensor x = tensor({1.0, 2.0, 3.0}), y = tensor({3.0, 2.0, 1.0});
    const auto is = [](const Tensor& t, std::vector<double> expected) {
        EXPECT_EQ(t.dtype(), boolean);
        EXPECT_EQ(t.to_vector(), expected);
    };
    is(x == y, {0, 1, 0});
    is(x != y, {1, 0, 1});
    is(x < y, {1, 0, 0});
    is(x <= y, {1, 1, 0});
    is(x > y, {0, 0, 1});
    is(x >= y, {0, 1, 1});
    is(x == 2, {0, 1, 0});
    is(2 == x, {0, 1, 0});
    is(x != 2u, {1, 0, 1});
    is(2 != x, {1, 0, 1});
    is(x < 2.5, {1, 1, 0});
    is(2.5 < x, {0, 0, 1});
    is(x <= 2, {1, 1, 0});
    is(2 <= x, {0, 1, 1});
    is(x > 2L, {0, 0, 1});
    is(2 > x, {1, 0, 0});
    is(x >= 2, {0, 1, 1});
    is(2 >= x, {1, 1, 0});
}

TEST(Dims, CanBeGivenAsOneInteger) {
    const Tensor x = arange(6).reshape({2, 3});
    EXPECT_EQ(sum(x, 1).to_vector(), (std::vector<double>{3, 12}));
    EXPECT_EQ(x.sum(1).to_vector(), (std::vector<double>{3, 12}));
    EXPECT_EQ(mean(x.to(f32), 0).to_vector(), (std::vector<double>{1.5, 2.5, 3.5}));
    EXPECT_EQ(x.reshape(-1).shape(), (Shape{6}));
    EXPECT_EQ(x.sum({}).item_int(), 15);
    EXPECT_EQ(zeros(3).shape(), (Shape{3}));
}

}  // namespace
}  // namespace axle
