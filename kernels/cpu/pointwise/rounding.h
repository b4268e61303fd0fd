// Private to kernels: stochastic rounding (kernels/ops/rounding.h) of contiguous lanes.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/philox.h"

namespace axle::kernels {

// Rounds elements first to first + n - 1 of a call (n <= kBlock) and stores them in the f16 or bf16
// array `data`. `first` selects the random bits.
void store_stochastically(const float* lanes, void* data, DType dtype, Philox random,
                          std::int64_t first, std::int64_t n);

}  // namespace axle::kernels
