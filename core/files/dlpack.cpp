#include "core/files/dlpack.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "core/files/dlpack_abi.h"
#include "core/ops.h"

namespace axle {
namespace {

using dlpack::Array;
using dlpack::DataType;
using dlpack::ManagedTensor;
using dlpack::ManagedTensorVersioned;

struct DTypeRow {
    DType dtype;
    DataType dlpack_dtype;
};
constexpr DTypeRow kDTypes[] = {
    {DType::f64, {dlpack::kFloat, 64, 1}},         {DType::f32, {dlpack::kFloat, 32, 1}},
    {DType::f16, {dlpack::kFloat, 16, 1}},         {DType::bf16, {dlpack::kBfloat, 16, 1}},
    {DType::i64, {dlpack::kInt, 64, 1}},           {DType::i32, {dlpack::kInt, 32, 1}},
    {DType::i16, {dlpack::kInt, 16, 1}},           {DType::i8, {dlpack::kInt, 8, 1}},
    {DType::u64, {dlpack::kUint, 64, 1}},          {DType::u32, {dlpack::kUint, 32, 1}},
    {DType::u16, {dlpack::kUint, 16, 1}},          {DType::u8, {dlpack::kUint, 8, 1}},
    {DType::boolean, {dlpack::kBool, 8, 1}},       {DType::f8_e4m3, {dlpack::kFloat8E4m3fn, 8, 1}},
    {DType::f8_e5m2, {dlpack::kFloat8E5m2, 8, 1}}, {DType::f8_e8m0, {dlpack::kFloat8E8m0fnu, 8, 1}},
    {DType::c64, {dlpack::kComplex, 64, 1}},
};

const char* device_name(std::int32_t type) {
    constexpr const char* kNames[] = {"unknown",
                                      "CPU",
                                      "CUDA",
                                      "CUDA's pinned host memory",
                                      "OpenCL",
                                      "unknown",
                                      "unknown",
                                      "Vulkan",
                                      "Metal",
                                      "VPI",
                                      "ROCm",
                                      "ROCm's pinned host memory",
                                      "an extension device",
                                      "CUDA's managed memory",
                                      "oneAPI",
                                      "WebGPU",
                                      "Hexagon",
                                      "MAIA",
                                      "Trainium"};
    const bool known = type >= 0 && static_cast<std::size_t>(type) < std::size(kNames);
    return kNames[known ? type : 0];
}

const char* code_name(std::uint8_t code) {
    constexpr const char* kNames[] = {"int",
                                      "uint",
                                      "float",
                                      "opaque handle",
                                      "bfloat",
                                      "complex",
                                      "bool",
                                      "float8_e3m4",
                                      "float8_e4m3",
                                      "float8_e4m3b11fnuz",
                                      "float8_e4m3fn",
                                      "float8_e4m3fnuz",
                                      "float8_e5m2",
                                      "float8_e5m2fnuz",
                                      "float8_e8m0fnu",
                                      "float6_e2m3fn",
                                      "float6_e3m2fn",
                                      "float4_e2m1fn"};
    return code < std::size(kNames) ? kNames[code] : "unknown";
}

// --- export

template <class Managed>
struct Export {
    Managed managed = {};
    std::shared_ptr<Storage> storage;
    Shape shape;
    Strides strides;
};

template <class Managed>
Managed* export_tensor(const char* op, const Tensor& tensor) {
    if (!tensor.defined()) throw UsageError(str(op, ": the tensor is undefined"));
    if (!tensor.device().is_cpu())
        throw DeviceError(str(op, ": the tensor is not on the CPU: ", tensor.device(),
                              "; pass tensor.to(Device::cpu())"));
    if (tensor.requires_grad())
        throw UsageError(str(op,
                             ": the tensor requires a gradient, which DLPack does not support; "
                             "pass tensor.detach()"));
    auto exported = std::make_unique<Export<Managed>>();
    exported->storage = tensor.impl()->storage;
    exported->shape = tensor.shape();
    exported->strides = tensor.strides();
    Array& array = exported->managed.array;
    array.data = tensor.numel() == 0 ? nullptr : tensor.raw_data();
    array.device = {dlpack::kCpu, 0};
    array.ndim = tensor.dim();
    const auto* row = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const DTypeRow& r) { return r.dtype == tensor.dtype(); });
    array.dtype = row->dlpack_dtype;
    array.shape = exported->shape.begin();
    array.strides = exported->strides.begin();
    exported->managed.deleter = [](Managed* self) {
        delete static_cast<Export<Managed>*>(self->context);
    };
    exported->managed.context = exported.get();
    return &exported.release()->managed;
}

// --- import

DType dtype_of_array(const DataType& dlpack_dtype) {
    for (const DTypeRow& row : kDTypes)
        if (row.dlpack_dtype.code == dlpack_dtype.code &&
            row.dlpack_dtype.bits == dlpack_dtype.bits && dlpack_dtype.lanes == 1)
            return row.dtype;
    throw DTypeError(
        str("from_dlpack: the dtype must be bool of 8 bits, int or uint of 8, 16, 32 or 64 bits, "
            "float of 16, 32 or 64 bits, bfloat of 16 bits, float8_e4m3fn, float8_e5m2, "
            "float8_e8m0fnu or complex of 64 bits, in 1 lane: ",
            code_name(dlpack_dtype.code), " (code ", int{dlpack_dtype.code}, ") of ",
            int{dlpack_dtype.bits}, " bits, ", dlpack_dtype.lanes, " lanes"));
}

// The checked contents of a DLPack handle.
struct Imported {
    void* data = nullptr;  // address of the lowest element
    std::size_t bytes = 0;
    std::int64_t offset = 0;  // position of the first element, in elements
    DType dtype = f32;
    Shape shape;
    Strides strides;
};

// Finds the memory range of the elements. With negative strides, the first element does not have
// the lowest address. Throws ValueError if the range exceeds the address space or is not aligned.
void find_extent(const Array& array, Imported& in) {
    const std::int64_t size = size_of(in.dtype);
    std::int64_t low = 0, high = 0;
    bool overflow = false;
    for (int d = 0; d < in.shape.size(); ++d) {
        std::int64_t reach = 0;
        overflow |= __builtin_mul_overflow(in.shape[d] - 1, in.strides[d], &reach);
        std::int64_t& end = reach < 0 ? low : high;
        overflow |= __builtin_add_overflow(end, reach, &end);
    }
    std::int64_t length = 0, before = 0, bytes = 0;
    overflow |= __builtin_sub_overflow(high, low, &length);
    overflow |= __builtin_add_overflow(length, 1, &length);
    overflow |= __builtin_mul_overflow(length, size, &bytes);
    overflow |= __builtin_mul_overflow(low, size, &before);
    std::uintptr_t first = reinterpret_cast<std::uintptr_t>(array.data), lowest = 0, end = 0;
    overflow |= __builtin_add_overflow(first, array.byte_offset, &first);
    overflow |= __builtin_add_overflow(first, before, &lowest);
    overflow |= __builtin_add_overflow(lowest, bytes, &end);
    if (overflow)
        throw ValueError(str("from_dlpack: the elements exceed the address space: shape ", in.shape,
                             ", strides ", in.strides, ", byte offset ", array.byte_offset));
    if (first % static_cast<std::uintptr_t>(size) != 0)
        throw ValueError(str("from_dlpack: elements of ", in.dtype, " are not aligned to ", size,
                             " bytes: the first element is ",
                             first % static_cast<std::uintptr_t>(size), " bytes past a multiple"));
    in.data = reinterpret_cast<void*>(lowest);  // NOLINT(performance-no-int-to-ptr)
    in.bytes = static_cast<std::size_t>(bytes);
    in.offset = -low;
}

Imported read(const Array& array) {
    if (array.device.type != dlpack::kCpu)
        throw DeviceError(str("from_dlpack: the memory is not on the CPU: ",
                              device_name(array.device.type), " (device type ", array.device.type,
                              ", index ", array.device.index, "); copy it to the CPU first"));
    Imported in;
    in.dtype = dtype_of_array(array.dtype);
    if (array.ndim < 0 || array.ndim > kMaxDims)
        throw ShapeError(str("from_dlpack: expected 0 to ", kMaxDims, " dimensions: ", array.ndim));
    if (array.ndim > 0 && array.shape == nullptr)
        throw ValueError(str("from_dlpack: the shape is null for ", array.ndim, " dimensions"));
    const auto ndim = static_cast<std::size_t>(array.ndim);
    in.shape = Shape(std::span<const std::int64_t>(array.shape, ndim));
    const std::int64_t count = numel(in.shape);
    const bool strided = array.strides != nullptr && count > 0;
    in.strides = strided ? Strides(std::span<const std::int64_t>(array.strides, ndim))
                         : contiguous_strides(in.shape);
    if (count == 0) return in;
    if (array.data == nullptr)
        throw ValueError(str("from_dlpack: the data is null for shape ", in.shape));
    find_extent(array, in);
    return in;
}

// Returns a tensor over the memory. The storage is created last: if an earlier statement throws,
// the caller still owns the handle.
Tensor make_tensor(const Imported& in, std::function<void()> release) {
    auto impl = std::make_shared<Impl>();
    impl->shape = in.shape;
    impl->strides = in.strides;
    impl->offset = in.offset;
    impl->dtype = in.dtype;
    impl->storage = std::make_shared<Storage>(in.data, in.bytes, Device::cpu(), std::move(release));
    return Tensor(std::move(impl));
}

template <class Managed>
Tensor import_tensor(Managed* managed, bool read_only) {
    const Imported in = read(managed->array);
    const auto release = [managed] {
        if (managed->deleter != nullptr) managed->deleter(managed);
    };
    if (in.bytes != 0 && !read_only) return make_tensor(in, release);
    Tensor result =
        in.bytes == 0 ? Tensor::empty(in.shape, {.dtype = in.dtype}) : clone(make_tensor(in, {}));
    release();
    return result;
}

// Converts between the structs of dlpack_abi.h and the structs of the API, which have the names of
// dlpack.h.
template <class To, class From>
To* same_layout(From* managed) {
    return static_cast<To*>(static_cast<void*>(managed));
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
    auto* managed = export_tensor<ManagedTensorVersioned>("to_dlpack", tensor);
    managed->version = dlpack::kVersion;
    return same_layout<DLManagedTensorVersioned>(managed);
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) {
    return same_layout<DLManagedTensor>(
        export_tensor<ManagedTensor>("to_dlpack_unversioned", tensor));
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
    if (managed == nullptr) throw ValueError("from_dlpack: the handle is null");
    auto* ours = same_layout<ManagedTensorVersioned>(managed);
    if (ours->version.major != dlpack::kVersion.major)
        throw ValueError(str("from_dlpack: DLPack ", ours->version.major, ".", ours->version.minor,
                             " is not supported, expected ", dlpack::kVersion.major, ".x"));
    return import_tensor(ours, (ours->flags & dlpack::kReadOnly) != 0);
}

Tensor from_dlpack(DLManagedTensor* managed) {
    if (managed == nullptr) throw ValueError("from_dlpack: the handle is null");
    return import_tensor(same_layout<ManagedTensor>(managed), false);
}

}  // namespace axle
