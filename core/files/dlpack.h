// Tensors to and from other libraries in the same process, without a copy: DLPack 1.1
// (https://dmlc.github.io/dlpack), which PyTorch, NumPy, JAX and others speak.
//
// The two structs are those of the original dlpack.h, to be included for looking into them, before
// or after this header; core/files/dlpack_abi.h has their layout for those without one.
//
// Both sides see what either writes, but neither knows that the other wrote: a change from outside
// does not count as a version (Tensor::version), so don't write to what a gradient waits for.
#pragma once

#include "core/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace axle::inline v0 {

// A handle that keeps the memory of `tensor` alive until its deleter is called, on any thread.
// Shape, strides and dtype are as they are now; the first element is at offset 0. It stays on this
// memory when the tensor moves to another (set_data, Module::to). UsageError for an undefined
// tensor and for one that requires a gradient, DeviceError for one that is not on the CPU.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
// For readers of before version 1.
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// A tensor over the handle's memory, which must hold the elements that its shape and strides say.
// Takes the handle over and calls its deleter when the last view is gone, on that thread. If it
// throws, the handle is still the caller's. Memory that is flagged as read-only is copied, for a
// Tensor can always be written to, and the deleter is called at once; so is that of a tensor
// without elements.
//
// ValueError for null, another major version, and elements that are not aligned to their size or
// lie beyond the address space; DeviceError for what is not on the CPU; DTypeError for a dtype that
// Axle lacks, vectors among them; ShapeError for negative sizes and more than kMaxDims of them.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace axle::inline v0
