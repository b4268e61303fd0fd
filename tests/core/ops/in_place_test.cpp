// Tests in-place arithmetic and compound assignment.
#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"

namespace axle {
namespace {

using Values = std::vector<double>;

TEST(InPlaceArithmetic, ChangesTensorAndItsViews) {
    Tensor x = tensor({1.0, 2.0, 3.0, 4.0}, {2, 2});
    const Tensor row = x[0];
    x.add_(tensor({1.0, 2.0}), 10);
    EXPECT_EQ(x.to_vector(), (Values{11, 22, 13, 24}));
    x.sub_(tensor({1, 2}), 10);
    EXPECT_EQ(x.to_vector(), (Values{1, 2, 3, 4}));
    x.div_(tensor({2.0, 4.0}));
    EXPECT_EQ(x.to_vector(), (Values{0.5, 0.5, 1.5, 1}));
    x.add_(1.5).sub_(1).mul_(4).div_(2);
    EXPECT_EQ(x.to_vector(), (Values{2, 2, 4, 3}));
    x.clamp_(2.5, 3.5);
    EXPECT_EQ(x.to_vector(), (Values{2.5, 2.5, 3.5, 3}));
    EXPECT_EQ(row.to_vector(), (Values{2.5, 2.5}));
    x[1].mul_(2);
    EXPECT_EQ(x.to_vector(), (Values{2.5, 2.5, 7, 6}));
    EXPECT_GT(row.version(), 0u);
}

TEST(InPlaceOps, RejectTensorsWhoseElementsShareMemoryExceptInFill) {
    Tensor row = zeros({1, 3});
    Tensor x = row.expand({4, 3});
    EXPECT_THROW(x.add_(1), UsageError);
    EXPECT_THROW(x += ones({4, 3}), UsageError);
    EXPECT_THROW(x.mul_(2), UsageError);
    EXPECT_THROW(x.copy_(ones({4, 3})), UsageError);
    EXPECT_THROW(x.uniform_(), UsageError);
    EXPECT_THROW(x.index_put_({0}, ones({3})), UsageError);
    EXPECT_EQ(row.to_vector(), (Values{0, 0, 0}));
    x.fill_(2);  // one value for all elements, as in PyTorch
    EXPECT_EQ(row.to_vector(), (Values{2, 2, 2}));
    Tensor same = row.expand({1, 3});  // no dimension is repeated
    same.add_(1);
    EXPECT_EQ(row.to_vector(), (Values{3, 3, 3}));
}

TEST(InPlaceArithmetic, RejectsFloatingResultsOfIntegers) {
    Tensor x = arange(3);
    EXPECT_THROW(x.add_(0.5), DTypeError);
    EXPECT_THROW(x.mul_(0.5), DTypeError);
    EXPECT_THROW(x.sub_(ones({3})), DTypeError);
    EXPECT_THROW(x.div_(2), DTypeError);
    EXPECT_THROW(x.div_(tensor({1, 2, 3})), DTypeError);
    EXPECT_EQ(x.to_vector(), (Values{0, 1, 2}));
    EXPECT_EQ(x.add_(2).mul_(3).to_vector(), (Values{6, 9, 12}));
}

TEST(InPlaceArithmetic, AllowsOnlyBooleanResultsInBooleanTensors) {
    Tensor x = tensor({1, 0}, {.dtype = boolean});
    EXPECT_THROW(x += 1, DTypeError);
    EXPECT_THROW(x.add_(1), DTypeError);
    EXPECT_THROW(x *= arange(2), DTypeError);
    EXPECT_THROW(x.mul_(tensor(1)), DTypeError);
    EXPECT_THROW(x += 0.5, DTypeError);
    EXPECT_EQ(x.to_vector(), (Values{1, 0}));
    EXPECT_EQ((x *= tensor({1, 1}, {.dtype = boolean})).to_vector(), (Values{1, 0}));
    EXPECT_EQ(x.add_(tensor({0, 1}, {.dtype = boolean}), 2).to_vector(), (Values{1, 1}));
    EXPECT_EQ((x *= false).to_vector(), (Values{0, 0}));
    EXPECT_EQ((x += true).to_vector(), (Values{1, 1}));
    EXPECT_EQ(arange(2).add_(x, 2).to_vector(), (Values{2, 3}));
    x.index_put_({0}, -1, true);
    EXPECT_EQ(x.dtype(), boolean);
}

TEST(InPlaceArithmetic, RejectsInvalidOperandsAndBounds) {
    Tensor x = ones({2});
    EXPECT_THROW(x.sub_(ones({3, 2})), ShapeError);
    EXPECT_THROW(x.div_(ones({3})), ShapeError);
    EXPECT_THROW(x += ones({3, 2}), ShapeError);
    EXPECT_THROW(ones({2}, {boolean}).sub_(true), DTypeError);
    EXPECT_THROW(x.clamp_(std::nullopt, std::nullopt), ValueError);
}

TEST(InPlaceArithmetic, ThrowsForLeafThatRequiresGradientUnlessUnderNoGrad) {
    Tensor w = ones({2}, {.requires_grad = true});
    EXPECT_THROW(w.add_(1), UsageError);
    EXPECT_THROW(w.sub_(ones({2})), UsageError);
    EXPECT_THROW(w.div_(2), UsageError);
    EXPECT_THROW(w.clamp_(0, 1), UsageError);
    EXPECT_THROW(w.copy_(ones({2})), UsageError);
    EXPECT_THROW(w.zero_(), UsageError);
    EXPECT_THROW(w.index_put_({0}, 1), UsageError);
    EXPECT_EQ(w.to_vector(), (Values{1, 1}));
    const NoGrad no_grad;
    EXPECT_EQ(w.div_(2).to_vector(), (Values{0.5, 0.5}));
    EXPECT_TRUE(w.is_leaf());
}

TEST(InPlaceArithmetic, IsRecordedForNonLeafTensors) {
    const Tensor w = tensor({2.0, 3.0}, {2}, {.requires_grad = true});
    Tensor y = w * w;
    const Tensor same = y;
    y.add_(w, 2).mul_(w).sub_(w).div_(2).add_(1).mul_(3);  // 3 ((w^3 + 2 w^2 - w) / 2 + 1)
    EXPECT_EQ(same.to_vector(), (Values{24, 66}));
    EXPECT_FALSE(y.is_leaf());
    sum(same).backward();
    EXPECT_EQ(w.grad().to_vector(), (Values{28.5, 57}));  // 3 (3 w^2 + 4 w - 1) / 2
}

TEST(InPlaceArithmetic, IsRecordedIfOnlyTheOperandRequiresGradient) {
    const Tensor w = tensor({2.0, 3.0}, {2}, {.requires_grad = true});
    Tensor x = ones({2}), y = ones({2}), z = ones({2, 2});
    x.mul_(w).mul_(w);
    y.copy_(w * 5);
    z.index_put_({0}, w * 7).index_put_({Slice(), 1}, w[0], true);
    EXPECT_EQ(x.to_vector(), (Values{4, 9}));
    EXPECT_EQ(y.to_vector(), (Values{10, 15}));
    EXPECT_EQ(z.to_vector(), (Values{14, 23, 1, 3}));
    (sum(x) + sum(y) + sum(z)).backward();
    EXPECT_EQ(w.grad().to_vector(), (Values{4 + 5 + 7 + 2, 6 + 5 + 7}));
}

TEST(InPlaceArithmetic, RemovesGradientsOfOverwrittenElements) {
    const Tensor w = tensor({1.0, 2.0, 3.0}, {3}, {.requires_grad = true});
    Tensor y = w * 2, z = w * 2, c = w * 2;
    y.index_put_({Slice(0, 2)}, 10);
    z.fill_(4);
    c.clamp_(3, 5);
    EXPECT_EQ(y.to_vector(), (Values{10, 10, 6}));
    EXPECT_EQ(z.to_vector(), (Values{4, 4, 4}));
    EXPECT_EQ(c.to_vector(), (Values{3, 4, 5}));
    EXPECT_FALSE(z.requires_grad());
    (sum(y) + sum(c)).backward();
    EXPECT_EQ(w.grad().to_vector(), (Values{0, 2, 2}));
}

// Another tensor that shares the memory would have the new values, but its old history. The
// backward pass of exp would read the new values in place of its saved result.
TEST(InPlaceArithmetic, ThrowsIfRecordedForTensorWithSharedMemory) {
    const Tensor w = tensor({2.0, 3.0}, {2}, {.requires_grad = true});
    Tensor x = zeros({2, 2}), y = w * w;
    EXPECT_THROW(x[0].copy_(w), UsageError);
    const Tensor view = y[0];
    EXPECT_THROW(y.add_(1), UsageError);
    Tensor z = exp(w);  // exp saves its result for backward
    EXPECT_THROW(z.mul_(2), UsageError);
    EXPECT_EQ(x.to_vector(), (Values{0, 0, 0, 0}));
    const NoGrad no_grad;
    EXPECT_EQ(x[0].copy_(w).to_vector(), (Values{2, 3}));
}

TEST(CompoundAssignment, ChangesInPlaceIfNothingIsRecorded) {
    Tensor x = tensor({1.0, 2.0});
    const Tensor same = x;
    x += tensor({1.0, 1.0});
    x -= 1;
    x *= 3;
    x /= tensor({3.0, 1.0});
    EXPECT_EQ(same.to_vector(), (Values{1, 6}));
    EXPECT_TRUE(x.is_same(same));
    Tensor w = ones({2}, {.requires_grad = true});
    const NoGrad no_grad;
    w -= 0.5;
    EXPECT_TRUE(w.is_leaf());
    EXPECT_EQ(w.to_vector(), (Values{0.5, 0.5}));
}

TEST(CompoundAssignment, ChangesElementsThroughTemporaryViews) {
    const Tensor x = tensor({1.0, 2.0, 3.0, 4.0}, {2, 2}), y = tensor({10.0, 20.0}, {2});
    x[0] += y;
    x[1] -= y;
    EXPECT_EQ(x.to_vector(), (Values{11, 22, -7, -16}));
    x[0] *= y;
    x[1] /= tensor({7.0, 4.0}, {2});
    EXPECT_EQ(x.to_vector(), (Values{110, 440, -1, -4}));
    x.slice(1, 0, 1) += 2;
    x.slice(1, 1, 2) -= 4;
    x[0] /= 4;
    x[1] *= 3;
    EXPECT_EQ(x.to_vector(), (Values{28, 109, 3, -24}));
    EXPECT_EQ((x[0] += 1).to_vector(), (Values{29, 110}));
    const Tensor w = ones({2, 2}, {.requires_grad = true});
    const NoGrad no_grad;
    w[1] -= 0.5;
    EXPECT_EQ(w.to_vector(), (Values{1, 1, 0.5, 0.5}));
}

TEST(CompoundAssignment, ThrowsIfRecordedForTemporaryView) {
    const Tensor w = tensor({2.0, 3.0}, {2}, {.requires_grad = true}), x = zeros({2, 2});
    EXPECT_THROW(x[0] += w, UsageError);
    EXPECT_THROW(w[0] += 1, UsageError);
    EXPECT_THROW(x[0] *= w, UsageError);
    EXPECT_EQ(x.to_vector(), (Values{0, 0, 0, 0}));
    EXPECT_EQ(w.to_vector(), (Values{2, 3}));
}

TEST(CompoundAssignment, RecordsHistoryAndDoesNotChangeOtherHandles) {
    const Tensor w = tensor({2.0, 3.0}, {2}, {.requires_grad = true});
    Tensor y = w * w;
    const Tensor before = y;
    y += w;
    y *= w;
    y -= 1.5;
    y /= 2;
    EXPECT_FALSE(y.is_same(before));
    EXPECT_EQ(before.to_vector(), (Values{4, 9}));
    EXPECT_EQ(y.to_vector(), (Values{5.25, 17.25}));
    sum(y).backward();
    EXPECT_EQ(w.grad().to_vector(), (Values{8, 16.5}));  // (3 w^2 + 2 w) / 2
}

TEST(CompoundAssignment, RecordsHistoryIfOnlyOperandRequiresGradient) {
    const Tensor w = ones({2}, {.requires_grad = true});
    Tensor total = zeros({});
    for (int i = 1; i <= 3; ++i) total += sum(w) * i;
    EXPECT_EQ(total.item(), 12);
    total.backward();
    EXPECT_EQ(w.grad().to_vector(), (Values{6, 6}));
}

TEST(CompoundAssignment, ThrowsForLeafThatRequiresGradient) {
    Tensor w = ones({2}, {.requires_grad = true});
    EXPECT_THROW(w += 1, UsageError);
    EXPECT_THROW(w -= ones({2}), UsageError);
    EXPECT_THROW(w *= 2, UsageError);
    EXPECT_THROW(w /= w, UsageError);
    EXPECT_EQ(w.to_vector(), (Values{1, 1}));
}

TEST(CompoundAssignment, KeepsItsDTypeIfRecordedAndRejectsResultsOfAnotherKindOrShape) {
    const Tensor w = ones({2}, {.dtype = f64, .requires_grad = true});
    Tensor total = zeros({2}), count = zeros({2}, {i64});
    total += w;
    EXPECT_EQ(total.dtype(), f32);
    EXPECT_TRUE(total.requires_grad());
    EXPECT_THROW(count += w, DTypeError);
    EXPECT_THROW(total += stack({w, w}), ShapeError);
}

TEST(InPlaceArithmetic, ReadsTheOldValuesOfOperandsThatShareMemoryWithTheResult) {
    Tensor a = arange(1.0, 7.0).reshape({3, 2});
    a -= a[0];
    EXPECT_EQ(a.to_vector(), (Values{0, 0, 2, 2, 4, 4}));
    Tensor b = tensor({2.0, 4, 6}, {1, 3});
    b /= b.slice(1, 0, 1);
    EXPECT_EQ(b.to_vector(), (Values{1, 2, 3}));
    Tensor s = arange(0.0, 9.0).reshape({3, 3});
    s += s.t();
    EXPECT_EQ(s.to_vector(), (Values{0, 4, 8, 4, 8, 12, 8, 12, 16}));
    Tensor flipped = arange(0.0, 9.0).reshape({3, 3});
    flipped.copy_(flipped.t());
    EXPECT_EQ(flipped.to_vector(), (Values{0, 3, 6, 1, 4, 7, 2, 5, 8}));
    const Tensor shifted = ones({10000});
    shifted.slice(0, 1).add_(shifted.slice(0, 0, 9999));
    EXPECT_EQ(sum(shifted).item(), 19999);
    Tensor twice = tensor({1.0, 2});
    twice += twice;
    EXPECT_EQ(twice.to_vector(), (Values{2, 4}));
}

TEST(Clamp, DoesNotRoundFractionalBoundsOfIntegers) {
    const Tensor x = tensor({1, 5});
    EXPECT_EQ(clamp(x, 2.5, {}).dtype(), f32);
    EXPECT_EQ(clamp(x, 2.5, {}).to_vector(), (Values{2.5, 5}));
    EXPECT_EQ(clamp(x, 2, {}).dtype(), i64);
    EXPECT_THROW(tensor({1, 5}).clamp_(0.5, 2), DTypeError);
}

}  // namespace
}  // namespace axle
