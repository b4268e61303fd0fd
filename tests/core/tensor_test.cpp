#include "core/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

// x[0] = y would assign to a temporary handle and change nothing, so it must not compile.
static_assert(!std::is_assignable_v<Tensor, Tensor>);
static_assert(!std::is_assignable_v<Tensor, const Tensor&>);
static_assert(!std::is_assignable_v<Tensor, double>);
static_assert(std::is_assignable_v<Tensor&, Tensor>);
static_assert(std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(std::is_nothrow_move_assignable_v<Tensor> && std::is_swappable_v<Tensor>);
// `x += y` can make the handle x refer to another tensor, so x must not be const. If x is a
// temporary such as x[0], the operator changes the elements of the view.
template <class T>
concept Addable = requires(T&& x, Tensor y) { std::forward<T>(x) += y; };
static_assert(Addable<Tensor&> && Addable<Tensor> && !Addable<const Tensor&>);

TEST(Tensor, ThrowsUsageErrorFromItsFunctionsIfUndefined) {
    const Tensor x;
    EXPECT_FALSE(x.defined());
    const auto expect_named = [](const char* name, const std::function<void()>& call) {
        const std::string text = std::string(name) + ": the tensor is undefined";
        tests::expect_error<UsageError>({text.c_str()}, call);
    };
    expect_named("shape", [&] { static_cast<void>(x.shape()); });
    expect_named("strides", [&] { static_cast<void>(x.strides()); });
    expect_named("dim", [&] { static_cast<void>(x.size(0)); });
    expect_named("shape", [&] { static_cast<void>(x.numel()); });
    expect_named("dtype", [&] { static_cast<void>(x.dtype()); });
    expect_named("device", [&] { static_cast<void>(x.device()); });
    expect_named("version", [&] { static_cast<void>(x.version()); });
    expect_named("requires_grad", [&] { static_cast<void>(x.requires_grad()); });
    expect_named("is_leaf", [&] { Tensor().requires_grad_(); });
    expect_named("grad", [&] { static_cast<void>(x.grad()); });
    expect_named("zero_grad", [&] { x.zero_grad(); });
    expect_named("set_grad", [&] { x.set_grad(zeros({1})); });
    expect_named("detach", [&] { static_cast<void>(x.detach()); });
    expect_named("dtype", [&] { static_cast<void>(x.data<float>()); });
    expect_named("raw_data", [&] { static_cast<void>(x.raw_data()); });
    EXPECT_THROW(static_cast<void>(x.item()), UsageError);
    EXPECT_THROW(x.to_vector(), UsageError);
    EXPECT_THROW(static_cast<void>(x.is_contiguous()), UsageError);
}

#if !AXLE_CUDA
TEST(Tensor, RefusesGpusInABuildWithoutCuda) {
    const std::initializer_list<const char*> words = {"cuda:0: this build of Axle has no CUDA"};
    tests::expect_error<DeviceError>(words, [] { ones({2}).cuda(); });
    tests::expect_error<DeviceError>(words, [] { zeros({2}, {.device = Device::cuda(0)}); });
    tests::expect_error<DeviceError>(words, [] { ones({2}).to(Device::cuda(0)); });
}
#endif

TEST(Tensor, CanBeSwappedAndStoredInStandardContainers) {
    Tensor a = ones({1}), b = zeros({2});
    const Tensor first = a, second = b;
    std::swap(a, b);
    EXPECT_TRUE(a.is_same(second) && b.is_same(first));
    std::tie(a, b) = std::pair(first, second);
    EXPECT_TRUE(a.is_same(first) && b.is_same(second));
    EXPECT_TRUE(std::exchange(a, second).is_same(first));
    std::optional<Tensor> maybe;
    maybe = first;
    std::vector<Tensor> list(2);
    list[1] = *maybe;
    std::rotate(list.begin(), list.begin() + 1, list.end());
    EXPECT_TRUE(list[0].is_same(first) && !list[1].defined());
}

TEST(Tensor, RemainsTheSameTensorAfterSetDataWhichRejectsOtherShapes) {
    const Tensor a = ones({2, 2});
    const Tensor b = a;
    EXPECT_TRUE(a.is_same(b));
    b.set_data(zeros({2, 2}, {.dtype = f64}));
    EXPECT_EQ(a.dtype(), f64);
    EXPECT_EQ(sum(a).item(), 0);
    EXPECT_THROW(a.set_data(ones({3})), ShapeError);
}

TEST(Tensor, RejectsReadingElementsOfStorageDTypes) {
    const Tensor x = empty({1}, {.dtype = DType::f8_e4m3});
    EXPECT_THROW(x.to_vector(), DTypeError);
    EXPECT_THROW(x.item(), DTypeError);
}

TEST(Tensor, RejectsConversionOfNanAndValuesOutsideOfInt64ToIntegers) {
    const double inf = std::numeric_limits<double>::infinity();
    for (const double value : {std::nan(""), inf, -inf, 0x1p63, -0x1.8p63}) {
        const Tensor x = full({}, value, {.dtype = f64});
        EXPECT_THROW(x.item_int(), ValueError) << value;
        EXPECT_THROW(x.item<int>(), ValueError) << value;
    }
    EXPECT_EQ(full({}, -0x1p63, {.dtype = f64}).item_int(), INT64_MIN);
    EXPECT_EQ(full({}, -1.5, {.dtype = f64}).item_int(), -1);
}

TEST(Tensor, CopiesSourcesOfTheSameStorageDType) {
    Tensor x = empty({2}, {.dtype = DType::i8}), y = empty({2}, {.dtype = DType::i8});
    std::memcpy(x.raw_data(), "ab", 2);
    y.copy_(x);
    EXPECT_EQ(std::memcmp(y.raw_data(), "ab", 2), 0);
}

TEST(Tensor, RejectsConversionsOfStorageDTypesAndUndefinedSourcesInCopy) {
    Tensor x = ones({2});
    for (const DType dtype : {DType::i8, DType::f8_e4m3, DType::f8_e8m0}) {
        Tensor other = empty({2}, {.dtype = dtype});
        EXPECT_THROW(x.copy_(other), DTypeError) << dtype;
        EXPECT_THROW(other.copy_(x), DTypeError) << dtype;
    }
    EXPECT_THROW(x.copy_(Tensor()), UsageError);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1}));
}

TEST(Tensor, SharesMemoryAndVersionWithViews) {
    Tensor x = arange(6).reshape({2, 3});
    Tensor column = x.select(1, 1);
    column.fill_(9);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{0, 9, 2, 3, 9, 5}));
    EXPECT_EQ(x.version(), column.version());
    EXPECT_EQ(x.version(), 1u);
}

TEST(Tensor, RejectsNegativeAndOverflowingSizesAndMoreThan8Dimensions) {
    EXPECT_THROW(empty({2, -1}), ShapeError);
    EXPECT_THROW(empty({INT64_MAX, 3}), ShapeError);
    EXPECT_THROW(empty({INT64_MAX / 2}, {.device = Device::meta()}),
                 ShapeError);  // the size in bytes overflows
    EXPECT_THROW(Dims(std::vector<std::int64_t>(9, 1)), ShapeError);
}

TEST(Tensor, HasNoMemoryOnMetaDevice) {
    const std::int64_t before = host_memory::stats().current;
    const Tensor x = empty({1 << 20, 1 << 10}, {.device = Device::meta()});
    const Tensor y = transpose(tanh(x) * 2.0, 0, 1);
    EXPECT_EQ(y.shape(), (Shape{1 << 10, 1 << 20}));
    EXPECT_EQ(host_memory::stats().current, before);
    EXPECT_THROW(y.to_vector(), DeviceError);
}

TEST(Tensor, PrintsValuesAndDType) {
    std::ostringstream out;
    out << tensor({1, 2.5, 3, -4}, {2, 2});
    EXPECT_EQ(out.str(), "tensor([[1, 2.5], [3, -4]], float32)");
}

TEST(Tensor, PrintsAllDigitsOfIntegers) {
    std::ostringstream out;
    out << tensor({1234567, -1}) << tensor({std::int64_t{9007199254740993}}) << tensor({true});
    EXPECT_EQ(out.str(),
              "tensor([1234567, -1], int64)tensor([9007199254740993], int64)tensor([true], bool)");
}

TEST(TensorData, ThrowsIfElementTypeDiffersFromDType) {
    Tensor x = ones({2});
    EXPECT_EQ(x.data<float>()[1], 1.0f);
    EXPECT_THROW(x.data<double>(), DTypeError);
}

TEST(Tensor, ReleasesBorrowedMemoryWithLastView) {
    float values[] = {1, 2, 3};
    bool released = false;
    Tensor view;
    {
        const Tensor x = Tensor::from_blob(values, {3}, f32, [&] { released = true; });
        view = x.slice(0, 1);
    }
    EXPECT_FALSE(released);
    EXPECT_EQ(view.to_vector(), (std::vector<double>{2, 3}));
    view = {};
    EXPECT_TRUE(released);
}

TEST(BroadcastShapes, AlignsSizesAtTheEndAndRejectsIncompatibleSizes) {
    EXPECT_EQ(broadcast_shapes("op", {3, 1}, {2, 1, 4}), Shape({2, 3, 4}));
    EXPECT_EQ(broadcast_shapes("op", {}, {0, 5}), Shape({0, 5}));
    EXPECT_THROW(broadcast_shapes("op", {3}, {2}), ShapeError);
}

TEST(TypePromotion, MatchesPyTorch) {
    EXPECT_EQ(promote(i64, bf16), bf16);
    EXPECT_EQ(promote(f16, bf16), f32);
    EXPECT_EQ(promote(u8, i32), i32);
    EXPECT_EQ(promote(boolean, u8), u8);
    EXPECT_EQ(promote(i64, Scalar(1.5)), f32);
    EXPECT_EQ(promote(i32, Scalar(2)), i32);
    EXPECT_EQ(promote(boolean, Scalar(2)), i64);
    EXPECT_EQ(promote(boolean, Scalar(true)), boolean);
    EXPECT_EQ(where(ones({2}, {.dtype = boolean}), ones({2}, {.dtype = boolean}), false).dtype(),
              boolean);
    EXPECT_EQ((ones({2}, {.dtype = bf16}) * ones({}, {.dtype = f64})).dtype(), bf16);
    EXPECT_EQ((ones({2}, {.dtype = i64}) * ones({}, {.dtype = f32})).dtype(), f32);
    EXPECT_EQ((ones({2}, {.dtype = i64}) / 2).dtype(), f32);
}

TEST(To, RoundsI64ToF32Once) {
    // This number is just above the middle of two floats, and the nearest double is the middle.
    const std::int64_t above = (std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1;
    const double next = 0x1p60 + 0x1p37;
    EXPECT_EQ(full({70}, above, {.dtype = i64}).to(f32).to_vector(), std::vector<double>(70, next));
    const Tensor strided = full({70, 2}, above, {.dtype = i64}).select(1, 0);
    EXPECT_EQ(strided.to(f32).to_vector(), std::vector<double>(70, next));
    EXPECT_EQ(full({}, above, {.dtype = i64}).to(bf16).item(), 0x1p60);
}

TEST(HalfTypes, RoundToNearestEvenAndKeepSpecialValues) {
    EXPECT_EQ(static_cast<float>(BFloat16(1.00390625f)), 1.0f);
    EXPECT_EQ(static_cast<float>(BFloat16(1.01171875f)), 1.015625f);
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(NAN))));
    EXPECT_EQ(static_cast<float>(Half(65519.0f)), 65504.0f);
    EXPECT_EQ(static_cast<float>(Half(65520.0f)), INFINITY);
    EXPECT_EQ(static_cast<float>(Half(0x1p-24f)), 0x1p-24f);
    EXPECT_EQ(static_cast<float>(Half(0x1p-25f)), 0.0f);
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        Half h;
        h.bits = static_cast<std::uint16_t>(bits);
        const float f = h;
        if (std::isnan(f)) continue;
        ASSERT_EQ(Half(f).bits, h.bits) << bits;
    }
}

TEST(Autocast, CachesCastOfLeafUntilItChanges) {
    const Tensor w = ones({8}, {.requires_grad = true});
    EXPECT_TRUE(autocast(w).is_same(w));
    const AutocastGuard guard(bf16);
    const Tensor a = autocast(w), b = autocast(w);
    EXPECT_EQ(a.dtype(), bf16);
    EXPECT_EQ(a.impl()->storage, b.impl()->storage);
    {
        const NoGrad no_grad;
        Tensor(w).fill_(2);
    }
    EXPECT_EQ(autocast(w).to_vector()[0], 2);
    {
        const AutocastGuard off(std::nullopt);
        EXPECT_EQ(autocast(w).dtype(), f32);
    }
    sum(autocast_to_f32(autocast(w))).backward();
    EXPECT_EQ(w.grad().dtype(), f32);
}

TEST(Autocast, CastsViewsOfLeafAsViewsOfCachedCast) {
    const Tensor w = arange(12).to(f32).view({3, 4}).set_requires_grad(true);
    const AutocastGuard guard(bf16);
    const Tensor whole = autocast(w), transposed = autocast(w.t()),
                 part = autocast(w.narrow(0, 1, 2));
    EXPECT_EQ(transposed.impl()->storage, whole.impl()->storage);
    EXPECT_EQ(part.impl()->storage, whole.impl()->storage);
    EXPECT_EQ(transposed.dtype(), bf16);
    EXPECT_EQ(transposed.to_vector(), w.t().to_vector());
    EXPECT_EQ(part.to_vector(), w.narrow(0, 1, 2).to_vector());
    // A tensor computed from a leaf is not a view of it.
    EXPECT_EQ(autocast(mul(w, 2.0).t()).to_vector(), mul(w, 2.0).t().to_vector());
    sum(mul(autocast_to_f32(transposed), arange(12).to(f32).view({4, 3}))).backward();
    EXPECT_EQ(w.grad().to_vector(), arange(12).to(f32).view({4, 3}).t().to_vector());
}

TEST(Autocast, DoesNotUseCachedCastAfterSetData) {
    const Tensor flat = arange(12).to(f32);
    const Tensor w = ones({2, 3}, {.requires_grad = true});
    w.set_data(flat.narrow(0, 0, 6).view({2, 3}));
    const Tensor transposed = w.t();
    w.set_data(flat.narrow(0, 6, 6).view({2, 3}));
    const AutocastGuard guard(bf16);
    EXPECT_EQ(autocast(w).to_vector(), w.to_vector());
    EXPECT_EQ(autocast(transposed).to_vector(), transposed.to_vector());
}

TEST(Autocast, DoesNotRoundWeightGradients) {
    const Tensor x = ones({257, 3}), w = ones({2, 3}, {.requires_grad = true});
    const Tensor b = ones({2}, {.requires_grad = true});
    const AutocastGuard guard(bf16);
    const Tensor y = linear(x, w, b);
    EXPECT_EQ(y.dtype(), bf16);
    sum(y).backward();
    for (const double g : w.grad().to_vector())
        EXPECT_EQ(g, 257);  // 257 is not representable in bf16
    for (const double g : b.grad().to_vector()) EXPECT_EQ(g, 257);
}

TEST(HostMemory, ReusesFreedBlocksAndReportsOutOfMemory) {
    host_memory::empty_cache();
    void* block = host_memory::allocate(1000);
    const MemoryStats during = host_memory::stats();
    host_memory::deallocate(block, 1000);
    EXPECT_EQ(host_memory::allocate(1001), block);
    EXPECT_EQ(host_memory::stats().reserved, during.reserved);
    host_memory::deallocate(block, 1001);
    try {
        empty({std::int64_t{1} << 58});
        FAIL() << "2^60 bytes were allocated";
    } catch (const OutOfMemory& error) {
        EXPECT_EQ(error.requested, std::int64_t{1} << 60);
        EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos);
    }
}

}  // namespace
}  // namespace axle
