// Creates the operands of bench_kernels.
#pragma once

#include <cstdint>

#include "bench/sizes.h"
#include "core/numerics.h"
#include "core/ops.h"

namespace axle::bench {

// Return an operand with random elements, or with random indices less than `below`. Calls use views
// of these tensors.
inline Tensor operand(const Shape& shape, DType dtype = f32) { return randn(shape, {dtype}); }
inline Tensor indices(std::int64_t below, const Shape& shape) { return randint(0, below, shape); }

}  // namespace axle::bench
