// Cumulative sums along the last dimension.
#pragma once

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// y[..., i] = x[..., 0] + ... + x[..., i]. x and y have the same shape and dtype, floating or i64.
// f16 and bf16 are summed in f32; f32 is summed in f64 on the CPU. On a GPU, the bits depend on the
// strides but are the same in every run. x and y can be the same memory with the same strides.
void cumsum(Cpu& on, ConstView x, View y);
void cumsum(Cuda& on, ConstView x, View y);

}  // namespace axle::kernels
