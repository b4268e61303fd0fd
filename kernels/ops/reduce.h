// Reductions over any set of dimensions of any strides.
//
// x and y have the same rank. A dimension where y's size is 1 and x's is not (0 included) is
// reduced; the others have equal sizes. x and y must not overlap. Integers and booleans are summed
// and compared in i64, f16 and bf16 in f32, and f32 sums are carried in f64 from block to block.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// y = the sum; 0 over nothing. y floating for a floating x, else i64.
void sum(Cpu& on, ConstView x, View y);
void sum(Cuda& on, ConstView x, View y);

// y = the mean of a floating x; NaN over nothing.
void mean(Cpu& on, ConstView x, View y);
void mean(Cuda& on, ConstView x, View y);

// y = the largest or smallest element, NaN where there is one; y has x's dtype. Nothing to choose
// from is a mistake of the caller.
void max(Cpu& on, ConstView x, View y);
void max(Cuda& on, ConstView x, View y);
void min(Cpu& on, ConstView x, View y);
void min(Cuda& on, ConstView x, View y);

// y (i64) = the position along the one reduced dimension of the first largest or smallest element,
// or of the first NaN. That dimension is not empty.
void argmax(Cpu& on, ConstView x, View y);
void argmax(Cuda& on, ConstView x, View y);
void argmin(Cpu& on, ConstView x, View y);
void argmin(Cuda& on, ConstView x, View y);

// y = sum of (x - mean)^2 / max(0, n - correction) over the n elements reduced, of a floating x, in
// two passes: inf or NaN for n <= correction.
void var(Cpu& on, ConstView x, double correction, View y);
void var(Cuda& on, ConstView x, double correction, View y);

}  // namespace axle::inline v0::kernels
