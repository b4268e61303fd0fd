// Private to kernels: kernels that prepare the inputs and correct the results of cuDNN's attention.
// This code does not call cuDNN.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::kernels::cudnn {

// Convert the mask of kernels/ops/attention.h to the bias that cuDNN adds to scores. bias_like()
// returns the view of the bias, whose `data` is null or points to bias_bytes() bytes aligned to 16.
// write_bias() queues the conversion. The numbers of the bias are finite and have the operands'
// dtype, or f32 for a floating mask of another dtype. The bias of a masked key is -2^101, or the
// lowest finite number in f16; its weight is 0 if a visible key has a much higher bias. Finite mask
// values in f32 or bf16 below -2^100 are replaced by -2^100. Heads, batches and queries that share
// a mask share the bias: their dimension has size 1 or stride 0.
View bias_like(const ConstView& mask, DType operands, void* data);
std::int64_t bias_bytes(const View& bias);
void write_bias(Cuda& on, const ConstView& mask, const View& bias);

// Sets out to 0 and lse to -infinity in the rows of queries whose keys are all masked, because
// cuDNN attends to masked keys in these rows. out is [B, H, Tq, D], 16-bit; lse is [B, H, Tq].
void clear_rows_without_keys(Cuda& on, const ConstView& mask, bool causal, const View& out,
                             const View& lse);
// Copies lse to the contiguous `to`. Replaces -infinity by a number so large that all weights of
// the row are 0.
void replace_infinity(Cuda& on, const ConstView& lse, const View& to);

// Writes the seed and the offset of the dropout generator to GPU memory.
void write_random_state(Cuda& on, const Philox& random, std::int64_t* seed, std::int64_t* offset);

}  // namespace axle::kernels::cudnn
