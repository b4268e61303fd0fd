// Moving and converting elements.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// y = x, converted to y's dtype (any pair of compute dtypes, or equal storage dtypes). x has y's
// shape, any strides. Floating to integer truncates towards zero; to boolean is x != 0. x and y
// must not overlap unless they are the same view.
void copy(Cpu& on, ConstView x, View y);
void copy(Cuda& on, ConstView x, View y);

// y = value, converted as copy does.
void fill(Cpu& on, double value, View y);
void fill(Cuda& on, double value, View y);
void fill(Cpu& on, std::int64_t value, View y);
void fill(Cuda& on, std::int64_t value, View y);

// y[i] = start + i * step over a 1-d y, computed in f64 (integers exactly in i64).
void arange(Cpu& on, double start, double step, View y);
void arange(Cuda& on, double start, double step, View y);

// Keeps y[..., r, c] = x where c - r <= diagonal (lower) or c - r >= diagonal (upper), 0 elsewhere.
// x and y are at least 2-d and may alias.
void triangle(Cpu& on, bool lower, std::int64_t diagonal, ConstView x, View y);
void triangle(Cuda& on, bool lower, std::int64_t diagonal, ConstView x, View y);

}  // namespace axle::inline v0::kernels
