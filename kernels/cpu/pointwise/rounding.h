// Private to kernels: stochastic rounding (kernels/ops/rounding.h) of contiguous lanes.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/philox.h"

namespace axle::inline v0::kernels {

// Elements `first` to first + n - 1 of a call, n <= kBlock, to an f16 or bf16 `data`.
void store_stochastically(const float* lanes, void* data, DType dtype, Philox random,
                          std::int64_t first, std::int64_t n);

}  // namespace axle::inline v0::kernels
