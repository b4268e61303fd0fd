// SequencePolicy: the extension point for models whose sequences are divided among processes.
//
// Models call the functions of this file instead of the corresponding ops. The functions use the
// SequencePolicy of a ForwardContextGuard (core/autograd/forward_context.h) on this thread, and
// call the ops if there is none. With a policy, each process passes its part of the sequences
// through the model, and the policy computes attention to the whole sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "core/autograd/forward_context.h"
#include "core/autograd/random_part.h"
#include "core/ops.h"
#include "core/tensor.h"

namespace axle::nn {

// Consecutive positions of a sequence.
struct PositionRange {
    std::int64_t begin = 0, count = 0;

    friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

struct SequencePolicy : ForwardContext {
    // Returns the attention of the queries of this process to the keys of the whole sequence. The
    // arguments have the same meaning as in scaled_dot_product_attention(), but q, k and v contain
    // only this process's part of the sequence. The mask is [B or 1, 1, 1, T] for this process's T
    // keys, or [B or 1, 1, L, L] for whole sequences. Policies that do not support a mask throw
    // UsageError or ShapeError, or ignore it as they document.
    virtual Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options) = 0;
    // Returns the positions of this process's tokens, in their order, for a part of `time` tokens.
    virtual std::vector<PositionRange> positions(std::int64_t time) const = 0;
    // Returns the number of parts of a sequence, which have equal lengths.
    virtual std::int64_t parts() const = 0;
    // Returns the whole sequences [B, T * parts()] in the order of their positions. x [B, T] has
    // this process's part of each sequence, and must have the same shape on all processes. The
    // result cannot be differentiated.
    virtual Tensor whole_sequences(const Tensor& x) const = 0;
};

// Returns the policy of this thread, or nullptr if sequences are whole.
SequencePolicy* sequence_policy();

// Returns the attention that the policy computes, or scaled_dot_product_attention() without a
// policy.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});
// Returns rotary_embedding(x, base) at the positions of the tokens. x is [..., T, D]. If `rotation`
// is defined, it is the result of rotary_rotation(), and x must be [B, heads, T, D].
Tensor rotary_positions(const Tensor& x, double base, const Tensor& rotation = {});
// Returns the cosines and sines [B, 1, T, head_size] for rotary_positions(), for tokens with the
// given positions [B, T] (i64). Positions must be in [0, length). The result has the given dtype,
// f64 or f32.
Tensor rotary_rotation(const Tensor& positions, std::int64_t length, std::int64_t head_size,
                       double base, DType dtype);
// Returns the cosines and sines [B, 1, T, 2 F] for rotary_positions(), for positions [B, T] (i64)
// and F = head_size / 2 frequencies: the angles, in radians, by which one position rotates.
Tensor rotary_rotation(const Tensor& positions, const std::vector<double>& frequencies,
                       DType dtype);
// Returns the positions [1, time] (i64) of this process's `time` tokens in the whole sequence.
Tensor token_numbers(std::int64_t time, Device device);
// Returns the rows of `table` for the positions of `time` tokens. The result is [time, ...], or [B,
// time, ...] if positions [B, time] (i64) are defined. Throws IndexError if a position is not in
// the table.
Tensor position_rows(const Tensor& table, std::int64_t time, const Tensor& positions = {});
// Returns the length of the whole sequence if this process has `time` tokens of it.
std::int64_t whole_length(std::int64_t time);
// Returns dropout(x, p) for x, which can be a part of a larger tensor. With a policy, an element of
// x [B, T, ...] with three or more dimensions is dropped if it would be dropped in the whole
// sequence. For this, each process draws the numbers of the whole sequence. A part along dimension
// 1 is then a part of this process's tokens; a part along another dimension throws UsageError.
Tensor sequence_dropout(const Tensor& x, double p, const RandomPart& part = {});

}  // namespace axle::nn
