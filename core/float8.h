// Matrix products in 8-bit floats with scales that stay on the device. Autograd does not record
// these functions; nn/precision/float8.h provides a layer. to_float8() and float8_matmul() throw
// DeviceError if their operands are on different devices.
#pragma once

#include "core/tensor.h"

namespace axle {

// A tensor of 8-bit floats with its scale. values [...] is f8_e4m3 or f8_e5m2. scale [2] is f32:
// the factor by which the values were multiplied, and its inverse.
struct Float8Tensor {
    Tensor values, scale;
};

// Returns whether the device has fp8 matrix products, which need a GPU with compute capability 8.9
// or higher.
bool has_float8(Device device);
// Returns the largest finite number of an fp8 dtype, f8_e4m3 or f8_e5m2.
float float8_range(DType dtype);

// Returns x * scale[0], rounded to nearest, saturated and contiguous. If `largest` (0-d, f32) is
// defined, it is set to max(largest, max|x|). Throws DTypeError unless x is floating and dtype is
// an fp8 type.
Float8Tensor to_float8(const Tensor& x, DType dtype, const Tensor& scale, const Tensor& largest);
// Converts x with a scale computed from x: the largest absolute element (at least 1e-12) becomes
// the largest finite number of dtype. If power_of_two is true, the scale is rounded down to a power
// of two. Throws DTypeError as the other overload does.
Float8Tensor to_float8(const Tensor& x, DType dtype, bool power_of_two = false);
// Returns the values converted to f32. The scale is not applied.
Tensor float8_values(const Tensor& values);
// Returns the transpose of the matrix x as a contiguous copy, with the same scale.
Float8Tensor transposed(const Float8Tensor& x);

struct Float8MatmulOptions {
    DType dtype = bf16;    // of the result: bf16, f16 or f32
    bool fast = false;     // if true, allows GPUs to compute faster with less accurate sums
    bool emulate = false;  // if true, computes in f32, as on devices without fp8 products
};
// Returns the product a b^T of the original values: the product of the 8-bit values times both
// inverse scales. a is [M, K], b is [N, K], and the result is [M, N]. Throws ShapeError unless both
// are matrices of 8-bit floats and the shapes match.
Tensor float8_matmul(const Float8Tensor& a, const Float8Tensor& b,
                     const Float8MatmulOptions& options);

// The parameters of delayed scaling, which computes the scales of three tensors from the largest
// absolute values of their elements in previous steps. The history is [length, 3] and the scales
// are [3, 2], both f32. kernels::DelayedScaling (kernels/ops/quantize.h) documents the fields.
// `dtypes` contains the fp8 dtypes of the three tensors.
struct Float8History {
    bool most_recent = true;
    double margin = 0;
    DType dtypes[3] = {};
    bool rescales = true;
};
// Updates the scales from the history at the end of a step, and starts a new row of the history.
void update_float8_scales(const Float8History& rule, Tensor& history, Tensor& scales);

}  // namespace axle
