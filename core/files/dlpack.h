// Exchanges tensors with other libraries in the same process without a copy, through DLPack 1.1
// (https://dmlc.github.io/dlpack). PyTorch, NumPy, JAX and others support it.
//
// The two structs are defined in the original dlpack.h, which can be included before or after this
// header. core/files/dlpack_abi.h defines their layout for programs without dlpack.h.
//
// Both sides see each other's writes, but an external write does not change Tensor::version(), so
// autograd cannot detect it: do not modify memory that a backward pass still needs.
#pragma once

#include "core/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace axle {

// Returns a handle that keeps the memory of `tensor` alive until its deleter is called, on any
// thread. Shape, strides and dtype are a snapshot; the first element is at offset 0. The handle
// keeps this memory even if the tensor's storage is replaced later (set_data, Module::to). Throws
// UsageError if the tensor is undefined or requires a gradient, DeviceError if it is not on the
// CPU.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
// Like to_dlpack, for consumers that support only DLPack versions before 1.0.
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// Returns a tensor over the handle's memory, which must contain the elements described by its shape
// and strides. Takes ownership of the handle and calls its deleter when the last view is destroyed,
// on that thread. If it throws, the caller still owns the handle. Read-only memory is copied,
// because a Tensor is always writable. In this case, and if there are no elements, the deleter is
// called immediately.
//
// Throws ValueError for null, another major version, and elements that are misaligned or exceed the
// address space; DeviceError if the memory is not on the CPU; DTypeError for unsupported dtypes and
// for vectors; ShapeError for negative sizes or more than kMaxDims dimensions.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace axle
