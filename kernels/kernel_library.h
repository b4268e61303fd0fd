// The C interface of shared libraries whose kernels `axle bench --library` compares with Axle's
// kernels. docs/kernels.md shows a library and lists the operands of each kernel. Valid C99 and
// C++.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of this interface. It changes if a struct or the meaning of a field changes.
#define AXLE_KERNEL_LIBRARY_VERSION 1

// The dtypes of operands, with the same values as in axle::DType.
enum AxleDType {
    AXLE_F64 = 0,
    AXLE_F32 = 1,
    AXLE_F16 = 2,
    AXLE_BF16 = 3,
    AXLE_I64 = 4,
    AXLE_I32 = 5
};

// A strided operand in memory that `axle bench` owns. Shape and strides are numbers of elements; a
// stride can be 0. Entries after the first ndim entries are 0.
typedef struct AxleKernelView {
    void* data;  // aligned to 64 bytes
    int32_t dtype;
    int32_t ndim;
    int64_t shape[8];
    int64_t stride[8];
} AxleKernelView;

// The arguments of a kernel. They are valid during the call only. The kernel writes to outputs, and
// only reads inputs.
typedef struct AxleKernelCall {
    const AxleKernelView* inputs;
    const AxleKernelView* outputs;
    const int64_t* integers;  // such as the stride of a convolution
    const double* numbers;    // such as the epsilon of a norm
    int32_t input_count;
    int32_t output_count;
    int32_t integer_count;
    int32_t number_count;
    int32_t threads;  // the number of threads that the kernel may use, at least 1
} AxleKernelCall;

typedef struct AxleKernel {
    const char* kernel;  // the kernel of Axle to compare with, such as "softmax"
    const char* name;    // the name in the rows of the benchmark
    // Computes the outputs and returns 0. Returns another value, without side effects, if the
    // kernel does not support the dtype, shape or layout; the row of the benchmark then contains
    // this value. Called by one thread at a time. Must not throw.
    int32_t (*run)(const AxleKernelCall* call);
} AxleKernel;

// The kernels of a library. The library owns the table, which stays valid until the program ends.
typedef struct AxleKernelLibrary {
    uint32_t version;  // AXLE_KERNEL_LIBRARY_VERSION
    uint32_t kernel_count;
    const AxleKernel* kernels;
} AxleKernelLibrary;

// A library exports one function, `const AxleKernelLibrary* axle_kernel_library(uint32_t version)`.
// `version` is the version that the program supports. Returns a null pointer if the library does
// not support it.
typedef const AxleKernelLibrary* (*AxleKernelLibraryEntry)(uint32_t version);

#ifdef __cplusplus
}
#endif
