// Private to kernels: attention by cuDNN, which uses the tensor cores.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/attention.h"

namespace axle::kernels::cudnn {

// Implements kernels/ops/attention.h. Returns false, without having queued anything with an effect,
// if cuDNN is missing or does not support the call. It supports f16 and bf16, depths that are
// multiples of 8 from 16 to 256, and causal masks with as many queries as keys. Small calls are
// refused, because a plan takes about half a second for each new shape. Dropout uses cuDNN's
// generator and is therefore refused if on.deterministic.
bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse);
// Computes the gradients. Gives the same bits in every run only if on.deterministic. Throws
// DeviceError if cuDNN dropped weights in the forward pass and cannot run the backward pass,
// because its random numbers cannot be reproduced otherwise.
bool attention_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& mask, const ConstView& out,
                        const ConstView& lse, const AttentionParams& params, const View& dq,
                        const View& dk, const View& dv);

}  // namespace axle::kernels::cudnn
