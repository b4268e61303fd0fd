// Argument checks and dtype promotion of the ops. The comment of each check names the error that it
// throws; messages start with the op's name.
#pragma once

#include <initializer_list>
#include <vector>

#include "core/tensor.h"

namespace axle {

// Returns the device of the tensors. Throws UsageError if a tensor is undefined, and DeviceError if
// the tensors are on different devices.
Device check_device(const char* op, std::initializer_list<const Tensor*> tensors);
// Throws UsageError with the index of a tensor in the list if it is undefined.
void check_defined(const char* op, const std::vector<Tensor>& tensors);
// Throws DTypeError unless x is f64, f32, f16 or bf16. The message calls the tensor `name`.
void check_floating(const char* op, const Tensor& x, const char* name = "x");
// Throws DTypeError unless the index is i64 or i32. The message calls the tensor `name`.
void check_index_dtype(const char* op, const Tensor& index, const char* name = "the index");
// Throws DTypeError if the dtype of x is a storage dtype, which arithmetic does not support. The
// message calls the tensor `name`.
void check_compute(const char* op, const Tensor& x, const char* name = "x");
// Throws DTypeError unless a and b have the same dtype. The message calls them a_name and b_name.
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b, const char* a_name = "a",
                      const char* b_name = "b");
// Throws UsageError if x is undefined, if x requires a gradient and ops are recorded, if x is
// sharded over processes, or if several elements of x share memory (expand). Ops that write one
// value to all elements set `allows_overlap`.
void check_in_place(const char* op, const Tensor& x, bool allows_overlap = false);
// Returns the operand of an in-place op on x. Returns a copy if the operand shares memory with x
// but has another layout or dtype. Otherwise, the op would read elements that it has already
// changed.
Tensor without_overlap(const Tensor& x, const Tensor& operand);

// Returns the size of a tensor in bytes, or -1 if the size exceeds int64. Dimensions of size 0 are
// ignored in this check. Sizes must not be negative.
std::int64_t checked_bytes(const Shape& shape, DType dtype);

// Returns the result dtype by PyTorch's promotion rules. The categories are bool < integer <
// floating. Within a category the result is the wider dtype, but f16 with bf16 gives f32. If only
// one tensor is 0-d, it changes the result only if its category is higher.
DType promote(const Tensor& a, const Tensor& b);
DType promote(DType a, DType b);
// Returns the result dtype for a tensor of dtype a and a number. A floating number turns integer
// dtypes and bool into f32, and an integer turns bool into i64; otherwise the result is a.
DType promote(DType a, Scalar b);

}  // namespace axle
