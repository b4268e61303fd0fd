// Attention between parts of sequences, for training in which several processes share a sequence
// (dist/sequence). q is [B, H, Tq, D]; k and v are [B, G, Tk, D], as in
// scaled_dot_product_attention() (core/functional.h).
#pragma once

#include <cstdint>

#include "core/functional.h"
#include "core/tensor.h"
#include "kernels/ops/attention.h"

namespace axle {

// Returns the parameters of attention. With dropout, draws the random numbers of all weights of
// `grid` for `batch` sequences. Processes that share a sequence must therefore make all draws in
// the same order. The sizes of `grid` must not be 0. Throws ValueError unless dropout_p is in
// [0, 1].
kernels::AttentionParams attention_params(const AttentionOptions& options, std::int64_t batch,
                                          std::int64_t head_size, const kernels::WeightGrid& grid);

// Returns the attention of q to k and v. The result can be differentiated. `mask` has the meaning
// of AttentionOptions::mask. Throws the errors of scaled_dot_product_attention(), ShapeError if the
// head sizes of k and v differ, and UsageError for dropout with a mask that requires a gradient.
Tensor attention_to_part(const Tensor& q, const Tensor& k, const Tensor& v,
                         const kernels::AttentionParams& params, const Tensor& mask = {});

// The result `out` [B, H, Tq, D] of attention to some of the keys, and the log-sum-exp `lse` [B, H,
// Tq] of each row of scores. lse is f64 if q is f64, otherwise f32.
struct AttentionPart {
    Tensor out, lse;
};
// Computes the attention to some of the keys, without recording it for backward. Throws the errors
// of attention_to_part() for q, k and v.
AttentionPart attention_part(const Tensor& q, const Tensor& k, const Tensor& v,
                             const kernels::AttentionParams& params);

struct AttentionGradients {
    Tensor q, k, v;
};
// Returns the parts of the gradients that come from the given keys and values. `all` is the
// attention to all keys, and dout is the gradient of all.out. params must be the params of
// attention_part().
AttentionGradients attention_part_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                           const Tensor& v, const AttentionPart& all,
                                           const kernels::AttentionParams& params);

}  // namespace axle
