// The binary interface of DLPack 1.1 (https://dmlc.github.io/dlpack). Its structs are in Axle's
// namespace, so that a program can also include the original dlpack.h. Programs without dlpack.h
// can cast a DLManagedTensorVersioned* from core/files/dlpack.h to a ManagedTensorVersioned*.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle::dlpack {

// The version of DLPack. A different major version has a different memory layout.
struct Version {
    std::uint32_t major;
    std::uint32_t minor;
};
inline constexpr Version kVersion = {1, 1};

struct Device {
    std::int32_t type;
    std::int32_t index;
};
inline constexpr std::int32_t kCpu = 1;

struct DataType {
    std::uint8_t code;
    std::uint8_t bits;    // number of bits per lane
    std::uint16_t lanes;  // 1 unless the element is a vector
};
enum Code : std::uint8_t {
    kInt = 0,
    kUint = 1,
    kFloat = 2,
    kBfloat = 4,
    kComplex = 5,  // bits counts the real and the imaginary part
    kBool = 6,
    kFloat8E4m3fn = 10,
    kFloat8E5m2 = 12,
    kFloat8E8m0fnu = 14,
};

struct Array {
    void* data;
    Device device;
    std::int32_t ndim;
    DataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;  // in elements; row-major if null
    std::uint64_t byte_offset;
};

// The layout of a tensor before version 1.0.
struct ManagedTensor {
    Array array;
    void* context;
    void (*deleter)(ManagedTensor* self);  // can be null
};

struct ManagedTensorVersioned {
    Version version;
    void* context;
    void (*deleter)(ManagedTensorVersioned* self);
    std::uint64_t flags;
    Array array;
};
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kIsCopied = 2;

static_assert(sizeof(void*) != 8 ||
              (sizeof(Array) == 48 && offsetof(Array, byte_offset) == 40 &&
               sizeof(ManagedTensor) == 64 && sizeof(ManagedTensorVersioned) == 80 &&
               offsetof(ManagedTensorVersioned, array) == 32));

}  // namespace axle::dlpack
