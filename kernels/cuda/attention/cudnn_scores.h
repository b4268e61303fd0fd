// Private to kernels: what attention needs beside cuDNN's graphs. These know no cuDNN.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels::cudnn {

// The mask of kernels/ops/attention.h as cuDNN adds it: finite numbers of the operands' dtype, or
// f32 for a floating mask of another. A hidden key has a score so low that its weight is 0 beside
// any key that is not hidden; lower numbers than that in a floating mask are raised to nearly that.
// Heads and batches that share a mask share the bias, as do queries, by stride 0. `data` is null,
// or bias_bytes() aligned to 16.
View bias_like(const ConstView& mask, DType operands, void* data);
std::int64_t bias_bytes(const View& bias);
void write_bias(Cuda& on, const ConstView& mask, const View& bias);

// cuDNN has the queries that the mask leaves no key look at all keys alike: out becomes 0 there and
// lse -infinity. out [B, H, Tq, D] of 16-bit numbers, lse [B, H, Tq].
void blank_rows(Cuda& on, const ConstView& mask, bool causal, const View& out, const View& lse);
// to = lse, but so large where it is -infinity that all weights are 0. `to` is contiguous.
void without_infinity(Cuda& on, const ConstView& lse, const View& to);

// The state of the numbers that drop weights, in the GPU's memory.
void write_state(Cuda& on, const Philox& random, std::int64_t* seed, std::int64_t* offset);

}  // namespace axle::inline v0::kernels::cudnn
