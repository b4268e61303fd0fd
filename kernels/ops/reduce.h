// Reductions over any set of dimensions, with any strides.
//
// x and y have the same number of dimensions. A dimension is reduced if y's size is 1 and x's size
// is different (it can be 0); all other sizes are equal. x and y must not overlap. Integers and
// booleans are summed and compared in i64; f16 and bf16 are summed and compared in f32. f32 sums
// are accumulated in f64 across blocks.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Writes the sum to y; an empty sum is 0. y is floating if x is floating, else i64.
void sum(Cpu& on, ConstView x, View y);
void sum(Cuda& on, ConstView x, View y);

// Writes the sum of all elements that are not NaN to y, which is floating like x.
void nansum(Cpu& on, ConstView x, View y);
void nansum(Cuda& on, ConstView x, View y);

// Writes the product to y; an empty product is 1. y is floating if x is floating, else i64. f32
// products are accumulated in f64. Integers wrap around on overflow.
void prod(Cpu& on, ConstView x, View y);
void prod(Cuda& on, ConstView x, View y);

// Writes the mean to y; the mean of no elements is NaN. x and y are floating.
void mean(Cpu& on, ConstView x, View y);
void mean(Cuda& on, ConstView x, View y);

// Writes the largest or smallest element to y, or NaN if there is a NaN. y has x's dtype. The
// reduced dimensions must not be empty.
void max(Cpu& on, ConstView x, View y);
void max(Cuda& on, ConstView x, View y);
void min(Cpu& on, ConstView x, View y);
void min(Cuda& on, ConstView x, View y);

// Writes to y (i64) the position of the first largest or smallest element, or of the first NaN. At
// most one dimension is reduced, and it must not be empty.
void argmax(Cpu& on, ConstView x, View y);
void argmax(Cuda& on, ConstView x, View y);
void argmin(Cpu& on, ConstView x, View y);
void argmin(Cuda& on, ConstView x, View y);

// Writes the variance to y: the sum of (x - mean)^2 over the n reduced elements, divided by max(0,
// n - correction). x and y are floating. The sum is computed in two passes. The result is inf or
// NaN for n <= correction.
void var(Cpu& on, ConstView x, double correction, View y);
void var(Cuda& on, ConstView x, double correction, View y);

}  // namespace axle::kernels
