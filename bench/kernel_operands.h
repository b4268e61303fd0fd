// Operands of the rows of bench_kernels.
#pragma once

#include <cstdint>

#include "bench/sizes.h"
#include "core/numerics.h"
#include "core/ops.h"

namespace axle::bench {

// Operands are tensors, which own the memory; the calls use their views.
inline Tensor operand(const Shape& shape, DType dtype = f32) { return randn(shape, {dtype}); }
inline Tensor indices(std::int64_t below, const Shape& shape) { return randint(0, below, shape); }

}  // namespace axle::bench
