// Scaled dot product attention in memory linear in the sequence: out = softmax(scale q k^T + mask)
// v.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// Whose numbers drop weights.
enum class DropoutNumbers : std::uint8_t {
    own,     // those of `random`, as on the CPU
    library  // cuDNN's, from the seed and the offset of `random`
};

struct AttentionParams {
    double scale = 1;
    bool causal = false;
    // Under causal, query i sees keys j <= i + causal_offset.
    std::int64_t causal_offset = 0;
    // Probability p of dropping a weight. Weight (b, h, i, j) is kept, times 1 / (1 - p), where the
    // uniform number ((b H + h) Tq + i) Tk + j of `random` is >= p.
    double dropout_p = 0;
    Philox random = {};
    // For attention_backward: what attention returned.
    DropoutNumbers numbers = DropoutNumbers::own;
};

// q and out [B, H, Tq, D]; k and v [B, G, Tk, D] with H a multiple of G: query head h reads head
// h / (H / G). One floating dtype, any strides. mask: data null, or [B, H, Tq, Tk] (broadcast by
// stride 0), boolean (true attends) or floating (added to the scores). lse [B, H, Tq], f64 for f64
// and else f32: the log-sum-exp of each row of scores, -infinity and a zero row of out where a
// query may attend to nothing. Outputs alias no input. Returns whose numbers have dropped weights,
// if any were: under on.deterministic its own.
DropoutNumbers attention(Cpu& on, ConstView q, ConstView k, ConstView v, ConstView mask,
                         const AttentionParams& params, View out, View lse);
DropoutNumbers attention(Cuda& on, ConstView q, ConstView k, ConstView v, ConstView mask,
                         const AttentionParams& params, View out, View lse);

// Gradients from that of out, with the out and lse of the forward call and equal params. A view
// with null data among dq, dk, dv is not computed.
void attention_backward(Cpu& on, ConstView dout, ConstView q, ConstView k, ConstView v,
                        ConstView mask, ConstView out, ConstView lse, const AttentionParams& params,
                        View dq, View dk, View dv);
void attention_backward(Cuda& on, ConstView dout, ConstView q, ConstView k, ConstView v,
                        ConstView mask, ConstView out, ConstView lse, const AttentionParams& params,
                        View dq, View dk, View dv);

}  // namespace axle::inline v0::kernels
