// The checks that ops share. Each throws the error that its name says, with the op's name first.
#pragma once

#include <initializer_list>

#include "core/tensor.h"

namespace axle::inline v0 {

// Defined tensors on one device (UsageError, DeviceError). Returns the device.
Device check_device(const char* op, std::initializer_list<const Tensor*> tensors);
// One of f64 f32 f16 bf16 (DTypeError).
void check_floating(const char* op, const Tensor& x);
// i64 or i32 (DTypeError).
void check_index_dtype(const char* op, const Tensor& index);
// A dtype that is computed with (DTypeError).
void check_compute(const char* op, const Tensor& x);
// The same dtype (DTypeError).
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b);
// Unsaid in-place rule: throws UsageError if writing to x would change recorded history.
void check_in_place(const char* op, const Tensor& x);

// Bytes of a tensor, or -1 if an int64 doesn't count them. The sizes are not negative.
std::int64_t checked_bytes(const Shape& shape, DType dtype);

// PyTorch's promotion between tensors: categories bool < integer < floating; within a category the
// wider, and f16 with bf16 gives f32; a 0-d tensor raises the result only by category.
DType promote(const Tensor& a, const Tensor& b);
DType promote(DType a, DType b);
// With a number: a floating number makes integers f32, else the tensor's dtype stays.
DType promote(DType a, Scalar b);

}  // namespace axle::inline v0
