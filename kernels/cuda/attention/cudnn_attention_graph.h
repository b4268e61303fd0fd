// Private to kernels: attention as graphs of cuDNN operations.
#pragma once

#include "kernels/cuda/cudnn/cudnn.h"

namespace axle::kernels::cudnn {

// The operands and options of attention (kernels/ops/attention.h). A graph depends on the alignment
// of the data pointers, but not on the data.
struct AttentionTensors {
    ConstView q, k, v, out, lse;
    // The bias that is added to the scaled scores, [B or 1, H or 1, Tq, Tk], finite. A view without
    // dimensions means no bias.
    ConstView bias = {};
    bool causal = false;   // query i attends to keys j <= i
    double dropout_p = 0;  // must be below 1
};
struct AttentionGradients {
    ConstView dout, dq, dk, dv;
    bool deterministic = false;
};

// The values of the forward graph, numbered in the order of the enumerators. Values that a graph
// does not use are not bound. seed and offset are i64 in device memory; kept is 1 / (1 - p).
struct ForwardValues {
    enum : Value { q = 1, k, v, out, lse, scale, hidden, kept, seed, offset, bias };
};
struct BackwardValues {
    // unit is 1 - p. dq_sum is a row-major f32 tensor [B, H, Tq, D], used only if not
    // deterministic.
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

}  // namespace axle::kernels::cudnn
