// Private to kernels: attention as graphs of cuDNN's operations.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"

namespace axle::inline v0::kernels::cudnn {

// The tensors of kernels/ops/attention.h, whose data count by their alignment only, and what
// happens to the scores.
struct AttentionTensors {
    ConstView q, k, v, out, lse;
    // Added to the scaled scores: [B or 1, H or 1, Tq or 1, Tk], finite. Without dimensions: none.
    ConstView bias = {};
    bool causal = false;   // query i sees keys j <= i
    double dropout_p = 0;  // below 1
};
struct AttentionGradients {
    ConstView dout, dq, dk, dv;
    bool deterministic = false;
};

// Values are numbered in the order of the enumerators; those that a graph has no use for are not
// bound. seed and offset are i64 numbers in device memory; kept is 1 / (1 - p).
struct ForwardValues {
    enum : Value { q = 1, k, v, out, lse, scale, hidden, kept, seed, offset, bias };
};
struct BackwardValues {
    // unit: 1 - p. dq_sum: f32 [B, H, Tq, D], row-major; only if not deterministic
    enum : Value {
        dout = 1,
        q,
        k,
        v,
        out,
        lse,
        dq,
        dk,
        dv,
        delta,
        scale,
        hidden,
        kept,
        unit,
        seed,
        offset,
        dq_sum,
        bias
    };
};
Graph attention_graph(const AttentionTensors& at);
Graph attention_backward_graph(const AttentionTensors& at, const AttentionGradients& gradients);

}  // namespace axle::inline v0::kernels::cudnn
