// Random tensors from Philox 4x32-10: element i of a call depends on (seed, offset, i) alone, so
// the numbers are the same for any thread count, and on CPU and GPU.
#pragma once

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::kernels {

// Element i takes word i % 4 of block offset + i / 4; a call uses up ceil(numel / 4) blocks.
// y is a contiguous floating view. Uniform in [low, high).
void uniform(Cpu& on, Philox random, double low, double high, View y);

// Box-Muller: elements 2j and 2j + 1 share words 2j and 2j + 1 of the same numbering.
void normal(Cpu& on, Philox random, double mean, double std, View y);

// Integers in [low, high), high - low <= 2^32. y is contiguous, i64 or i32.
void randint(Cpu& on, Philox random, std::int64_t low, std::int64_t high, View y);

// y = x * mask / (1 - p), mask = uniform >= p: the mask is recomputed in the backward pass from the
// same Philox state, never stored. x and y are contiguous and may alias.
void dropout(Cpu& on, Philox random, double p, ConstView x, View y);

}  // namespace axle::kernels
