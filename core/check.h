// Argument checks shared by the ops. Each throws the error named in its comment; messages start
// with the op's name.
#pragma once

#include <initializer_list>

#include "core/tensor.h"

namespace axle {

// Requires defined tensors (UsageError) on one device (DeviceError). Returns that device.
Device check_device(const char* op, std::initializer_list<const Tensor*> tensors);
// Requires f64, f32, f16 or bf16 (DTypeError).
void check_floating(const char* op, const Tensor& x);
// Requires i64 or i32 (DTypeError).
void check_index_dtype(const char* op, const Tensor& index);
// Requires a dtype that arithmetic supports, not one for storage only (DTypeError).
void check_compute(const char* op, const Tensor& x);
// Requires equal dtypes (DTypeError).
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b);
// Throws UsageError if writing to x in place would change recorded history.
void check_in_place(const char* op, const Tensor& x);

// Returns the size of a tensor in bytes, or -1 if it exceeds int64. Sizes must not be negative.
std::int64_t checked_bytes(const Shape& shape, DType dtype);

// Returns the result dtype by PyTorch's promotion rules. Categories: bool < integer < floating.
// Within a category the wider dtype wins; f16 with bf16 gives f32. A 0-d tensor only raises the
// category.
DType promote(const Tensor& a, const Tensor& b);
DType promote(DType a, DType b);
// Promotion with a number: a floating number turns integer dtypes into f32; otherwise the tensor's
// dtype is kept.
DType promote(DType a, Scalar b);

}  // namespace axle
