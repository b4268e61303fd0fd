// Products in 8-bit floats: rounding to them, with scales that stay on the device, and the product.
// None of this is recorded for backward; nn/precision/float8.h has a layer.
#pragma once

#include "core/tensor.h"

namespace axle::inline v0 {

// Values [..] f8_e4m3 or f8_e5m2, and scale [2] f32: what the values were multiplied by, and its
// inverse.
struct Float8Tensor {
    Tensor values, scale;
};

// Whether a device multiplies them: a GPU of compute capability 8.9 or more.
bool has_float8(Device device);
// The largest number of either type.
float float8_range(DType dtype);

// x times scale[0], rounded to nearest and saturated, contiguous. `largest`, f32 and 0-d, unless
// undefined, takes the largest |x| where that is more. DTypeError unless x is floating and dtype is
// of 8 bits.
Float8Tensor to_float8(const Tensor& x, DType dtype, const Tensor& scale, const Tensor& largest);
// With the scale that brings x's largest element to the largest number.
Float8Tensor to_float8(const Tensor& x, DType dtype, bool power_of_two = false);
// The values in f32, as they are.
Tensor float8_values(const Tensor& values);
// The rows of a matrix become its columns.
Float8Tensor transposed(const Float8Tensor& x);

struct Float8MatmulOptions {
    DType dtype = bf16;    // of the result: bf16, f16 or f32
    bool fast = false;     // sums may be less exact, on GPUs that gain by it
    bool emulate = false;  // in f32, on any device; also what happens where there is no other way
};
// a b^T over their scales: a [M, K], b [N, K]. ShapeError.
Tensor float8_matmul(const Float8Tensor& a, const Float8Tensor& b,
                     const Float8MatmulOptions& options);

// Of three tensors whose largest elements are known from steps before: history [length, 3] and
// scales [3, 2], f32 (kernels/ops/quantize.h).
struct Float8History {
    bool most_recent = true;
    double margin = 0;
    DType dtypes[3] = {};
    bool rescales = true;
};
void end_float8_step(const Float8History& rule, Tensor& history, Tensor& scales);

}  // namespace axle::inline v0
