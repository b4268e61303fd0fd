// Private to kernels: attention by cuDNN, which uses the tensor cores.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/ops/attention.h"

namespace axle::inline v0::kernels::cudnn {

// As kernels/ops/attention.h says. False, and nothing is queued that matters, where cuDNN is absent
// or the call does not suit it: it takes f16 and bf16 with depths that are multiples of 8 from 16
// to 256, causal scores if they are a square, and enough work to be worth a plan, which takes about
// half a second for each new shape. Weights are dropped by cuDNN's own numbers, and so not under
// on.deterministic.
bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse);
// Gives the same bits in every run only where on.deterministic asks for it. DeviceError where
// cuDNN has dropped weights and can't say which: nobody else knows its numbers.
bool attention_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& mask, const ConstView& out,
                        const ConstView& lse, const AttentionParams& params, const View& dq,
                        const View& dk, const View& dv);

}  // namespace axle::inline v0::kernels::cudnn
