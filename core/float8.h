// Matrix products in 8-bit floats with scales that stay on the device. Autograd does not record
// these functions; nn/precision/float8.h provides a layer.
#pragma once

#include "core/tensor.h"

namespace axle {

// Values [...] in f8_e4m3 or f8_e5m2, and scale [2] in f32: the factor that the values were
// multiplied by, and its inverse.
struct Float8Tensor {
    Tensor values, scale;
};

// Returns whether the device has fp8 matrix products: GPUs with compute capability 8.9 or higher.
bool has_float8(Device device);
// Returns the largest finite number of f8_e4m3 or f8_e5m2.
float float8_range(DType dtype);

// Returns x * scale[0], rounded to nearest and saturated, contiguous. If `largest` (0-d, f32) is
// defined, it becomes max(largest, max|x|). Throws DTypeError unless x is floating and dtype is an
// fp8 type.
Float8Tensor to_float8(const Tensor& x, DType dtype, const Tensor& scale, const Tensor& largest);
// Computes the scale from x: its largest absolute element maps to the largest finite number. With
// power_of_two the scale is rounded to a power of two.
Float8Tensor to_float8(const Tensor& x, DType dtype, bool power_of_two = false);
// Returns the values converted to f32, without applying the scale.
Tensor float8_values(const Tensor& values);
// Returns the transposed matrix as a contiguous copy.
Float8Tensor transposed(const Float8Tensor& x);

struct Float8MatmulOptions {
    DType dtype = bf16;    // dtype of the result: bf16, f16 or f32
    bool fast = false;     // allow less exact sums on GPUs that gain from them
    bool emulate = false;  // compute in f32; also used on devices without fp8 products
};
// Returns a b^T with the scales removed: a [M, K], b [N, K]. Throws ShapeError.
Tensor float8_matmul(const Float8Tensor& a, const Float8Tensor& b,
                     const Float8MatmulOptions& options);

// The rule for delayed scaling of three tensors from the largest elements of previous steps. It
// uses history [length, 3] and scales [3, 2], both f32 (see kernels/ops/quantize.h).
struct Float8History {
    bool most_recent = true;
    double margin = 0;
    DType dtypes[3] = {};
    bool rescales = true;
};
// Ends a step. Updates the scales from the history and starts a new row of the history.
void update_float8_scales(const Float8History& rule, Tensor& history, Tensor& scales);

}  // namespace axle
