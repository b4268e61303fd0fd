// Running totals along the last dimension.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// y[..., i] = x[..., 0] + ... + x[..., i]. x and y have one shape and one dtype, floating or i64;
// f16 and bf16 are added up in f32, f32 on the CPU in f64. On a GPU the bits depend on the strides,
// but never on the run. x and y may be the same memory with the same strides.
void cumsum(Cpu& on, ConstView x, View y);
void cumsum(Cuda& on, ConstView x, View y);

}  // namespace axle::inline v0::kernels
