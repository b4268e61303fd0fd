// Kernels that copy, convert and fill.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes y = x, converted to y's dtype. Supports all pairs of compute dtypes, and equal storage
// dtypes. x has y's shape and any strides. Floating to integer truncates towards zero; the
// conversion to boolean is x != 0. x and y must not overlap unless they are the same view.
void copy(Cpu& on, ConstView x, View y);
void copy(Cuda& on, ConstView x, View y);

// Computes y = value, converted like copy().
void fill(Cpu& on, double value, View y);
void fill(Cuda& on, double value, View y);
void fill(Cpu& on, std::int64_t value, View y);
void fill(Cuda& on, std::int64_t value, View y);

// Computes y[i] = start + i * step for a 1-d y, computed in f64 (integers exactly in i64).
void arange(Cpu& on, double start, double step, View y);
void arange(Cuda& on, double start, double step, View y);

// Computes y[..., r, c] = x[..., r, c] if c - r <= diagonal (lower) or c - r >= diagonal (upper),
// else 0. x and y are at least 2-d and can alias.
void triangle(Cpu& on, bool lower, std::int64_t diagonal, ConstView x, View y);
void triangle(Cuda& on, bool lower, std::int64_t diagonal, ConstView x, View y);

}  // namespace axle::kernels
