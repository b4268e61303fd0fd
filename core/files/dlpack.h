// Exchanges tensors with other libraries in the same process without a copy, through DLPack 1.1
// (https://dmlc.github.io/dlpack). PyTorch, NumPy, JAX and others support it.
//
// DLManagedTensorVersioned and DLManagedTensor are defined in the original dlpack.h, which can be
// included before or after this header. For programs without dlpack.h, core/files/dlpack_abi.h
// defines their layout.
//
// Both libraries can write to the shared memory. A write by another library does not change
// Tensor::version(), so autograd cannot detect it: do not modify memory that a backward pass still
// needs.
#pragma once

#include "core/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace axle {

// Returns a handle that keeps the memory of `tensor` alive until its deleter is called, on any
// thread. The handle has the current shape, strides and dtype; the first element is at offset 0.
// The handle refers to this memory even if the tensor's storage is replaced later (set_data,
// Module::to). Throws UsageError if the tensor is undefined or requires a gradient, and DeviceError
// if it is not on the CPU.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
// Like to_dlpack, but returns a handle for libraries that support only DLPack versions before 1.0.
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// Returns a tensor over the handle's memory, which must contain the elements described by its shape
// and strides. Takes ownership of the handle: its deleter is called when the last view is
// destroyed, on the thread that destroys it. If this function throws, the caller still owns the
// handle. Read-only memory is copied, because a Tensor is always writable. In this case, and if
// there are no elements, the deleter is called immediately.
//
// Throws ValueError if the handle, or its shape or data where needed, is null, or if the handle has
// another major version. Also throws ValueError if elements are misaligned or exceed the address
// space. Throws DeviceError if the memory is not on the CPU, and DTypeError for unsupported dtypes
// and for vectors. Throws ShapeError for negative sizes, more than kMaxDims dimensions, and a
// number of elements beyond int64.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace axle
