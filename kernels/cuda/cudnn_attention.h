// Private to kernels: attention by cuDNN, which uses the tensor cores.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/cudnn.h"

namespace axle::inline v0::kernels::cudnn {

// As kernels/attention.h says. False, and nothing is queued, where cuDNN is absent or the call does
// not suit it: it takes f16 and bf16 with depths that are multiples of 8, no mask but the causal
// one of a square of scores, no dropout (whose numbers are not the ones of the CPU), rows aligned
// to 16 bytes, and enough work to be worth a plan, which takes about half a second for each new
// shape.
bool attention(Cuda& on, const ConstView& q, const ConstView& k, const ConstView& v,
               const ConstView& mask, const AttentionParams& params, const View& out,
               const View& lse);
// Gives the same bits in every run only where on.deterministic asks for it.
bool attention_backward(Cuda& on, const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& mask, const ConstView& out,
                        const ConstView& lse, const AttentionParams& params, const View& dq,
                        const View& dk, const View& dv);

// The graphs, for a library of version(). The views' data count by their alignment only. Values
// are numbered in the order of the enumerators.
struct ForwardValues {
    enum : Value { q = 1, k, v, out, lse, scale, hidden };
};
Graph attention_graph(const ConstView& q, const ConstView& k, const ConstView& v, bool causal,
                      const ConstView& out, const ConstView& lse);
struct BackwardValues {
    // dq_sum: f32 [B, H, Tq, D], row-major; only if not deterministic
    enum : Value { dout = 1, q, k, v, out, lse, dq, dk, dv, delta, scale, one, hidden, dq_sum };
};
Graph attention_backward_graph(const ConstView& dout, const ConstView& q, const ConstView& k,
                               const ConstView& v, bool causal, const ConstView& out,
                               const ConstView& lse, const ConstView& dq, const ConstView& dk,
                               const ConstView& dv, bool deterministic);

}  // namespace axle::inline v0::kernels::cudnn
