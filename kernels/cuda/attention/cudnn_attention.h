// Private to kernels: attention by cuDNN, which uses the tensor cores.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/attention.h"

namespace axle::kernels::cudnn {

// Computes attention() of kernels/ops/attention.h with cuDNN. Returns false and does not change the
// results if cuDNN is missing or older than 9.6, does not support the call or fails. Supported
// calls have f16 or bf16 operands and a depth that is a multiple of 8 from 16 to 256. The rows of
// q, k, v and out must be contiguous and aligned to 16 bytes; lse must be contiguous and aligned to
// 16 bytes. Causal calls must have the same number of queries and keys, and no causal_offset. Calls
// with fewer than 16 queries or little work are not supported, because planning takes about half a
// second for each new shape. Dropout uses cuDNN's generator, so it is not supported if
// on.deterministic is true, params.grid is set, or cuDNN cannot compute the gradients. A dropout_p
// of 1 is not supported either.
bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse);
// Computes the gradients, or returns false like attention(), and also if Axle's own generator
// dropped weights in the forward pass. The operands and gradients can have any layout; they are
// copied if cuDNN does not support it. Gives the same bits in every run only if on.deterministic is
// true. Throws DeviceError if cuDNN dropped weights in the forward pass and cannot run the backward
// pass: only cuDNN can reproduce its random numbers.
bool attention_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& mask, const ConstView& out,
                        const ConstView& lse, const AttentionParams& params, const View& dq,
                        const View& dk, const View& dv);

}  // namespace axle::kernels::cudnn
