// Private to kernels: kernels that cuDNN's attention graphs need around them. They do not depend on
// cuDNN.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::kernels::cudnn {

// Converts the mask of kernels/ops/attention.h to the bias that cuDNN adds. It consists of finite
// numbers of the operands' dtype, or f32 for a floating mask of another dtype. The score of a
// hidden key is so low that its weight is 0 unless all keys are hidden; lower values in a floating
// mask are raised to almost that value. Heads, batches and queries that share a mask share the
// bias, by stride 0. `data` is null, or bias_bytes() bytes aligned to 16.
View bias_like(const ConstView& mask, DType operands, void* data);
std::int64_t bias_bytes(const View& bias);
void write_bias(Cuda& on, const ConstView& mask, const View& bias);

// Sets rows of out to 0 and their lse to -infinity for queries whose keys are all masked out,
// because cuDNN attends to all their keys equally. out is [B, H, Tq, D], 16-bit; lse is [B, H, Tq].
void clear_rows_without_keys(Cuda& on, const ConstView& mask, bool causal, const View& out,
                             const View& lse);
// Copies lse to the contiguous `to`, and replaces -infinity by a number so large that all weights
// are 0.
void replace_infinity(Cuda& on, const ConstView& lse, const View& to);

// Writes the seed and the offset of the dropout generator to GPU memory.
void write_random_state(Cuda& on, const Philox& random, std::int64_t* seed, std::int64_t* offset);

}  // namespace axle::kernels::cudnn
