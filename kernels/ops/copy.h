// Kernels that copy, convert and fill tensors, and kernels for arange() and for triangles of
// matrices.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = x, converted to y's dtype. Supports all pairs of compute dtypes, and storage dtypes
// if both are equal. x and y have the same shape and any strides. Conversions from floating to
// integer dtypes truncate towards zero to i64; NaN and values outside of i64 become its smallest
// value. Smaller integer dtypes keep the low bits. The conversion to boolean is x != 0. x and y
// must not overlap unless they are the same view.
void copy(Cpu& on, ConstView x, View y);
void copy(Cuda& on, ConstView x, View y);

// Sets all elements of y to `value`, converted to y's dtype as by copy().
void fill(Cpu& on, double value, View y);
void fill(Cuda& on, double value, View y);
void fill(Cpu& on, std::int64_t value, View y);
void fill(Cuda& on, std::int64_t value, View y);

// Sets y[i] = start + i * step. y is 1-d, with any compute dtype and stride. The values are
// computed in f64. For integer dtypes and booleans, they are truncated towards zero first, and must
// be in the range of i64.
void arange(Cpu& on, double start, double step, View y);
void arange(Cuda& on, double start, double step, View y);

// Computes y[..., r, c] = x[..., r, c] if c - r <= diagonal (lower) or c - r >= diagonal (upper),
// else 0. x and y have one shape with at least two dimensions and one dtype, and can be the same
// view.
void triangle(Cpu& on, bool lower, std::int64_t diagonal, ConstView x, View y);
void triangle(Cuda& on, bool lower, std::int64_t diagonal, ConstView x, View y);

}  // namespace axle::kernels
