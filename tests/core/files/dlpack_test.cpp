#include "core/files/dlpack.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/files/dlpack_abi.h"
#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

using dlpack::ManagedTensor;
using dlpack::ManagedTensorVersioned;
using tests::expect_error;

ManagedTensorVersioned* as_managed(DLManagedTensorVersioned* managed) {
    return reinterpret_cast<ManagedTensorVersioned*>(managed);
}
ManagedTensor* as_managed(DLManagedTensor* managed) {
    return reinterpret_cast<ManagedTensor*>(managed);
}

// Returns the elements' bytes in row-major order, for any dtype.
std::string data_of(const Tensor& t) {
    const Tensor whole = contiguous(t);
    return {static_cast<const char*>(whole.raw_data()),
            static_cast<std::size_t>(whole.numel() * size_of(whole.dtype()))};
}

// A handle to a row-major f32 tensor [2, 3], as another library would create it.
struct Foreign {
    std::vector<double> memory = std::vector<double>(16);  // aligned for every dtype
    std::vector<std::int64_t> shape = {2, 3}, strides = {3, 1};
    int deleted = 0;
    ManagedTensorVersioned managed = {};

    Foreign() {
        for (int i = 0; i < 32; ++i) floats()[i] = static_cast<float>(i);
        managed.version = {1, 0};
        managed.context = this;
        managed.deleter = [](ManagedTensorVersioned* self) {
            ++static_cast<Foreign*>(self->context)->deleted;
        };
        managed.array = {memory.data(), {dlpack::kCpu, 0}, 2, {dlpack::kFloat, 32, 1},
                         shape.data(),  strides.data(),    0};
    }
    float* floats() { return reinterpret_cast<float*>(memory.data()); }
    DLManagedTensorVersioned* handle() {
        managed.array.ndim = static_cast<std::int32_t>(shape.size());
        managed.array.shape = shape.data();
        return reinterpret_cast<DLManagedTensorVersioned*>(&managed);
    }
};

template <class E>
void expect_refused(Foreign& foreign, std::initializer_list<const char*> parts,
                    std::source_location at = std::source_location::current()) {
    expect_error<E>(
        parts, [&] { from_dlpack(foreign.handle()); }, at);
    EXPECT_EQ(foreign.deleted, 0) << "line " << at.line()
                                  << ": the caller must still own the handle";
}

TEST(DLPack, ExportsShapeStridesOffsetAndVersion) {
    const Tensor base = arange(24).view({2, 3, 4});
    const Tensor x = base.transpose(0, 2).narrow(0, 1, 2);  // shape [2, 3, 2]
    ManagedTensorVersioned* managed = as_managed(to_dlpack(x));
    EXPECT_EQ(managed->version.major, 1u);
    EXPECT_EQ(managed->version.minor, 1u);
    EXPECT_EQ(managed->flags, 0u);
    const dlpack::Array& array = managed->array;
    EXPECT_EQ(array.device.type, dlpack::kCpu);
    EXPECT_EQ(array.ndim, 3);
    EXPECT_EQ(Shape(std::span(array.shape, 3)), (Shape{2, 3, 2}));
    EXPECT_EQ(Strides(std::span(array.strides, 3)), (Strides{1, 4, 12}));
    EXPECT_EQ(static_cast<char*>(array.data) + array.byte_offset, x.raw_data());
    managed->deleter(managed);
}

TEST(DLPack, KeepsExportedMemoryUntilDeleterIsCalled) {
    Tensor x = ones({3});
    const std::weak_ptr<Storage> storage = x.impl()->storage;
    ManagedTensor* managed = as_managed(to_dlpack_unversioned(x));
    x = {};
    ASSERT_FALSE(storage.expired());
    EXPECT_EQ(static_cast<float*>(managed->array.data)[2], 1);
    managed->deleter(managed);
    EXPECT_TRUE(storage.expired());
}

TEST(DLPack, KeepsExportedMemoryAfterSetData) {
    const Tensor x = ones({3});
    ManagedTensorVersioned* managed = as_managed(to_dlpack(x));
    x.set_data(zeros({3}));
    EXPECT_EQ(static_cast<float*>(managed->array.data)[2], 1);
    managed->deleter(managed);
}

TEST(DLPack, RoundTripsEveryDType) {
    for (int t = 0; t <= static_cast<int>(DType::c64); ++t) {
        const auto dtype = static_cast<DType>(t);
        const Tensor x = Tensor::empty({2, 3}, {.dtype = dtype});
        for (int i = 0; i < 6 * size_of(dtype); ++i)
            static_cast<unsigned char*>(x.raw_data())[i] =
                static_cast<unsigned char>(dtype == boolean ? i % 2 : 40 + i);
        const Tensor y = from_dlpack(to_dlpack(x.t()));
        EXPECT_EQ(y.raw_data(), x.raw_data()) << dtype;
        EXPECT_EQ(data_of(y), data_of(x.t())) << dtype;
        EXPECT_EQ(data_of(from_dlpack(to_dlpack_unversioned(x))), data_of(x)) << dtype;
    }
}

TEST(DLPack, ExportsStandardDTypeCodes) {
    const auto dtype_of = [](DType dtype) {
        ManagedTensorVersioned* managed =
            as_managed(to_dlpack(Tensor::empty({1}, {.dtype = dtype})));
        const dlpack::DataType found = managed->array.dtype;
        managed->deleter(managed);
        return std::vector<int>{found.code, found.bits, found.lanes};
    };
    EXPECT_EQ(dtype_of(boolean), (std::vector<int>{6, 8, 1}));
    EXPECT_EQ(dtype_of(bf16), (std::vector<int>{4, 16, 1}));
    EXPECT_EQ(dtype_of(DType::c64), (std::vector<int>{5, 64, 1}));
    EXPECT_EQ(dtype_of(DType::f8_e4m3), (std::vector<int>{10, 8, 1}));
    EXPECT_EQ(dtype_of(DType::f8_e5m2), (std::vector<int>{12, 8, 1}));
    EXPECT_EQ(dtype_of(DType::f8_e8m0), (std::vector<int>{14, 8, 1}));
}

TEST(DLPack, ImportsWithoutCopyAndCallsDeleterAfterLastView) {
    Foreign foreign;
    Tensor x = from_dlpack(foreign.handle());
    EXPECT_EQ(x.raw_data(), foreign.floats());
    Tensor column = x.select(1, 2);
    x.add_(ones({2, 3}));
    EXPECT_EQ(foreign.floats()[5], 6);
    foreign.floats()[2] = 50;
    x = {};
    EXPECT_EQ(foreign.deleted, 0);
    EXPECT_EQ(column.to_vector(), (std::vector<double>{50, 6}));
    std::thread([last = std::move(column)] {}).join();
    EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, TreatsNullStridesAsRowMajorAndAddsByteOffset) {
    Foreign foreign;
    foreign.managed.array.strides = nullptr;
    foreign.managed.array.byte_offset = 8;
    EXPECT_EQ(from_dlpack(foreign.handle()).to_vector(), (std::vector<double>{2, 3, 4, 5, 6, 7}));
}

TEST(DLPack, ImportsNegativeAndZeroStrides) {
    Foreign foreign;
    foreign.managed.array.data = foreign.floats() + 5;
    foreign.strides = {-3, -1};
    const Tensor flipped = from_dlpack(foreign.handle());
    EXPECT_EQ(flipped.to_vector(), (std::vector<double>{5, 4, 3, 2, 1, 0}));
    EXPECT_EQ(flipped.impl()->storage->data(), foreign.floats());
    EXPECT_EQ(flipped.impl()->storage->bytes(), 6 * sizeof(float));

    Foreign repeated;
    repeated.strides = {0, 2};
    EXPECT_EQ(from_dlpack(repeated.handle()).to_vector(), (std::vector<double>{0, 2, 4, 0, 2, 4}));
}

TEST(DLPack, ImportsScalarsAndImportsAndExportsEmptyTensors) {
    Foreign scalar;
    scalar.shape = {};
    scalar.managed.array.byte_offset = 12;
    EXPECT_EQ(from_dlpack(scalar.handle()).item(), 3);

    Foreign empty;
    empty.shape = {2, 0};
    empty.managed.array.data = nullptr;
    const Tensor x = from_dlpack(empty.handle());
    EXPECT_EQ(x.shape(), (Shape{2, 0}));
    EXPECT_NE(x.raw_data(), nullptr);
    EXPECT_EQ(empty.deleted, 1) << "no memory to keep";

    ManagedTensorVersioned* managed = as_managed(to_dlpack(zeros({0, 4})));
    EXPECT_EQ(managed->array.data, nullptr);
    managed->deleter(managed);
}

TEST(DLPack, CopiesReadOnlyMemory) {
    Foreign foreign;
    foreign.managed.flags = dlpack::kReadOnly | dlpack::kIsCopied;
    foreign.strides = {1, 2};
    Tensor x = from_dlpack(foreign.handle());
    EXPECT_EQ(foreign.deleted, 1);
    x.add_(ones({2, 3}));
    EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 3, 5, 2, 4, 6}));
    EXPECT_EQ(foreign.floats()[0], 0);
}

TEST(DLPack, IgnoresUnknownFlagsAndTheFlagIsCopied) {
    Foreign foreign;
    foreign.managed.flags = dlpack::kIsCopied | std::uint64_t{1} << 40;  // bit 40 is not a flag
    EXPECT_EQ(from_dlpack(foreign.handle()).raw_data(), foreign.floats());
}

TEST(DLPack, AcceptsLaterMinorButNotMajorVersions) {
    Foreign foreign;
    foreign.managed.version = {1, 9};
    EXPECT_EQ(from_dlpack(foreign.handle()).numel(), 6);
    foreign.deleted = 0;
    foreign.managed.version = {2, 3};
    expect_refused<ValueError>(foreign, {"from_dlpack: DLPack 2.3 is not supported, expected 1.x"});
}

TEST(DLPack, ImportsHandleWithoutDeleter) {
    Foreign foreign;
    foreign.managed.deleter = nullptr;
    EXPECT_EQ(from_dlpack(foreign.handle()).numel(), 6);
}

TEST(DLPack, RejectsExportOfUnsupportedTensors) {
    expect_error<UsageError>({"to_dlpack: the tensor is undefined"}, [] { to_dlpack({}); });
    expect_error<UsageError>({"to_dlpack: the tensor requires a gradient", "detach()"},
                             [] { to_dlpack(ones({2}).set_requires_grad()); });
    expect_error<DeviceError>({"to_dlpack_unversioned: the tensor is not on the CPU: meta"}, [] {
        to_dlpack_unversioned(Tensor::empty({2}, {.device = Device::meta()}));
    });
}

TEST(DLPack, RejectsNonCpuDevicesAndReportsTheirNames) {
    Foreign foreign;
    foreign.managed.array.device = {2, 1};
    expect_refused<DeviceError>(foreign, {"from_dlpack: the memory is not on the CPU: CUDA",
                                          "index 1", "copy it to the CPU first"});
    foreign.managed.array.device = {18, 0};
    expect_refused<DeviceError>(foreign, {"from_dlpack: ", "Trainium"});
    for (const std::int32_t type : {0, 5, 19, -1, std::numeric_limits<std::int32_t>::max()}) {
        foreign.managed.array.device = {type, 0};
        expect_refused<DeviceError>(foreign, {"from_dlpack: ", "unknown"});
    }
}

TEST(DLPack, RejectsUnsupportedDTypes) {
    Foreign foreign;
    foreign.managed.array.dtype = {dlpack::kFloat, 32, 4};
    expect_refused<DTypeError>(foreign, {"from_dlpack: the dtype must be ", "float", "4 lanes"});
    foreign.managed.array.dtype = {dlpack::kFloat, 80, 1};
    expect_refused<DTypeError>(foreign, {"from_dlpack: ", "80 bits"});
    foreign.managed.array.dtype = {dlpack::kComplex, 128, 1};
    expect_refused<DTypeError>(foreign, {"from_dlpack: ", "complex"});
    foreign.managed.array.dtype = {17, 4, 1};
    expect_refused<DTypeError>(foreign, {"from_dlpack: ", "float4_e2m1fn"});
    foreign.managed.array.dtype = {200, 8, 1};
    expect_refused<DTypeError>(foreign, {"from_dlpack: ", "unknown (code 200)"});
}

TEST(DLPack, RejectsNullPointersAndInvalidShapes) {
    expect_error<ValueError>({"from_dlpack: the handle is null"},
                             [] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); });
    expect_error<ValueError>({"from_dlpack: the handle is null"},
                             [] { from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)); });
    Foreign foreign;
    foreign.shape = {2, -3};
    expect_refused<ShapeError>(foreign, {"shape: sizes can't be negative: [2, -3]"});
    foreign.shape = std::vector<std::int64_t>(9, 1);
    expect_refused<ShapeError>(foreign, {"from_dlpack: expected 0 to 8 dimensions: 9"});
    foreign.shape = {2, 3};
    DLManagedTensorVersioned* handle = foreign.handle();
    foreign.managed.array.ndim = -1;
    expect_error<ShapeError>({"from_dlpack: expected 0 to 8 dimensions: -1"},
                             [&] { from_dlpack(handle); });
    foreign.managed.array.ndim = 2;
    foreign.managed.array.shape = nullptr;
    expect_error<ValueError>({"from_dlpack: the shape is null"}, [&] { from_dlpack(handle); });
    foreign.managed.array.data = nullptr;
    expect_refused<ValueError>(foreign, {"from_dlpack: the data is null for shape [2, 3]"});
}

TEST(DLPack, RejectsMisalignedAndOverflowingMemory) {
    Foreign foreign;
    foreign.managed.array.byte_offset = 2;
    expect_refused<ValueError>(foreign, {"from_dlpack: elements of float32 are not aligned to 4"});
    foreign.managed.array.byte_offset = 0;
    constexpr std::int64_t kHuge = std::int64_t{1} << 61;
    for (const auto& [shape, strides] :
         std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>{
             {{2, 3}, {kHuge, 1}},
             {{2, 3}, {-kHuge, 1}},
             {{2, 3}, {INT64_MIN, 1}},
             {{3, 3}, {INT64_MAX, 1}},
             {{2, 2}, {INT64_MAX, INT64_MAX}},
             {{2 * kHuge, 1}, {1, 1}},
             {{2, 2}, {-kHuge / 2, kHuge / 2}}}) {
        foreign.shape = shape;
        foreign.strides = strides;
        expect_refused<ValueError>(foreign, {"from_dlpack: the elements exceed"});
    }
    foreign.shape = {kHuge, kHuge};
    expect_refused<ShapeError>(foreign, {"shape: number of elements overflows int64"});
}

}  // namespace
}  // namespace axle
