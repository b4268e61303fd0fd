// Private to dist: functions shared by the kinds of attention to divided sequences.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/ops/attention.h"

namespace axle::dist {

// Throws ShapeError unless q [B, H, T, D], k and v [B, G, T, D] have 4 dimensions and k and v have
// the same shape. Throws UsageError if q and k have different lengths, because attention to divided
// sequences must be self-attention. Also throws the errors of check_device().
void check_self_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v);

// Returns the grid of the attention weights of whole sequences of `length` tokens. q has the heads
// of this process. Under a RandomPartGuard (tensor parallel), these are a part of all heads, and
// the grid's first_head is the index of the first one.
kernels::WeightGrid whole_grid(const Tensor& q, std::int64_t length);

}  // namespace axle::dist
